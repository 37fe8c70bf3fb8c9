"""The protocol core of one endpoint: all its peers, found by context id, and the handshake before them.

Call order. The owner of the core, after anything happened:

    handle_packets(...)      what arrived, as one batch; then commit the `ReceiveResult`
    handle_timeout(now)      when `poll_timeout` has passed; after the packets, or acknowledged data is declared lost
    poll_event()             until None: deliver
    poll_transmit(now)       until None, or until the sockets are full: send
    poll_timeout(now)        when to call again, if nothing arrives

Commands (`connect`, `post`, `cancel`, `on_deregistered`, `release`, `close`) may come at any time and are followed by
the last two.

Peers are served round-robin: each `poll_transmit` returns one packet or burst of the next peer.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Container, Iterable, Sequence
from itertools import islice
from random import Random
from typing import Final

from srd.proto.base.errors import PacketError, UsageError
from srd.proto.base.security import CredentialCheck, PacketProtection, Secured, Security
from srd.proto.config import ProtocolConfig
from srd.proto.endpoint.admission import MemoryAdmission
from srd.proto.endpoint.handshake import PeerOpening, accept, refusal_of
from srd.proto.endpoint.keepalive import REFUSED_S
from srd.proto.endpoint.peer import PeerCore
from srd.proto.endpoint.peer_state import PeerState
from srd.proto.endpoint.stateless import StatelessResponder
from srd.proto.endpoint.timers import Timers
from srd.proto.endpoint.unconfirmed import Unconfirmed
from srd.proto.events import Completion, Event, PeerEnded, ReceiveResult
from srd.proto.memory import Destinations, Memory
from srd.proto.peer_trace import PeerTrace
from srd.proto.recv.shared import Shared
from srd.proto.trace import Trace
from srd.proto.wire.control import (
    INNER_TYPES,
    Accept,
    Ack,
    Close,
    Closed,
    Control,
    Datagram,
    Hello,
    Probe,
    Protected,
    Refuse,
    Reset,
    Retry,
    SecureAccept,
    decode_untrusted,
)
from srd.proto.wire.data import (
    ABORTED,
    MAX_BURST_PACKETS,
    MIN_DATAGRAM_BYTES,
    OPCODE_BITS,
    WITH_ACK,
    Address,
    Burst,
    GroDatagram,
    ReceivedBurst,
    host_of,
    received_bursts_untrusted,
)
from srd.proto.wire.status import RefuseReason, Status
from srd.proto.work_request import BatchRequest, WorkRequest

_PULLS: Final = -1  # its timer is that of the pulls; the others are peers' numbers


class EndpointCore:
    """All peers of one endpoint; see the module for the order of calls. Times are seconds of one monotonic clock."""

    def __init__(
        self,
        config: ProtocolConfig,
        *,
        datagram_bytes: int,
        secret: bytes,
        new_context: Callable[[], int],
        rng: Random,
        accepting: bool,
        memory: Memory | None = None,
        destinations: Destinations | None = None,
        security: Security | None = None,
        trace: Trace | None = None,
        read: Callable[[int, int], bytes] | None = None,
        answers: Callable[[Address], bool] | None = None,
    ) -> None:
        """Take what the core cannot make itself.

        `datagram_bytes`: the largest datagram that this end receives; `secret`: the cookies' key; `new_context`: a
        source of unguessable 64-bit ids; `rng`: random numbers for the choice of paths; `accepting`: whether others may
        open peers; `memory`: registrations for writes and reads, None without any; `destinations`: who takes messages,
        None: whoever owns the core takes all; `security`: handshakes and keys, None: plain text; `trace`: receives the
        trace events of every peer; `read`: returns what landed at an offset of the region, of a length, for the ACKs
        that come with data; None: none do; `answers`: whether an address without a peer gets replies, None: any does.
        """
        self.malformed = 0
        self.expects_more_data = self._has_incomplete = False  # the last batch's messages: lack a lot, or anything
        self._config, self._datagram_bytes = config, datagram_bytes
        self._stateless = StatelessResponder(
            secret=secret, accepting=accepting, paths=config.paths, datagram_bytes=datagram_bytes, security=security,
            answers=answers,
        )  # fmt: skip
        self._security = security
        self._admissions: dict[int, MemoryAdmission] = {}  # by region
        self._trace = trace
        self._acks: list[tuple[PeerCore, Ack, float]] = []  # that came with the data of the batch
        self._openings: dict[int, PeerOpening] = {}  # by number: peers that this end opens, until they are made
        self._opening_contexts: dict[int, PeerOpening] = {}  # these, by the context id that this end chose
        self._peers: dict[int, PeerCore] = {}  # by number
        self._ended: dict[int, PeerCore] = {}  # ended peers whose PeerEnded has not been delivered yet
        self._shared = shared = Shared(
            config, peers=self._peers, new_token=new_context, rng=rng, memory=memory, destinations=destinations,
            read=read,
        )  # fmt: skip
        self._copies, self._events, self._pulls = shared.copies, shared.events, shared.pulls
        self._by_context: dict[int, PeerCore] = {}  # by the context id that this end chose
        self._by_remote: dict[int, PeerCore] = {}  # incoming peers, by the context id that the other end chose
        self._by_reset: dict[int, list[PeerCore]] = {}  # with keys, likewise: two other ends may choose the same
        self.protections: dict[int, PacketProtection] = {}
        """Keys of open peers, by the context that this end chose: for whoever decrypts their data."""
        self._hosts: dict[object, int] = {}  # number of peers of each host
        self._unaccepted: set[int] = set()  # numbers of the incoming peers without a call of `accepted` yet
        self._unconfirmed = Unconfirmed()  # of these
        self._ready: dict[int, None] = {}  # numbers of the peers that may have something to send, round-robin
        # Likewise, of those whose data `poll_transmit` held back, and that had none when it looked for data only.
        self._held, self._without_data = dict[int, None](), dict[int, None]()
        self._traced = 0  # how many events, from the first on, are in the trace
        self._timers = Timers()
        self._next_number = 0

    # -- commands -----------------------------------------------------------------------------------------------

    def connect(
        self,
        address: Address,
        *,
        sizes: tuple[int, ...],
        sources: Sequence[Address] = (),
        check_credential: CredentialCheck | None = None,
        now: float,
    ) -> int:
        """Open a peer; return its number. `sizes`: datagram sizes to try, in bytes, largest first.

        `sources`: the addresses of this end's paths towards the peer, by which a NAT on the way is found; empty: they
        are not known. `check_credential`: which credential the responder must have; None: any.
        """
        if not sizes or min(sizes) < MIN_DATAGRAM_BYTES:
            raise UsageError(f"sizes: {sizes} needs sizes of at least {MIN_DATAGRAM_BYTES} bytes")
        if max(sizes) > self._datagram_bytes:  # the other end would use more than this one
            raise UsageError(f"sizes: {sizes} has more than the {self._datagram_bytes} bytes that this end receives")
        opening = PeerOpening(
            self._take_number(address),
            address=address,
            own_context=self._shared.new_token(),
            config=self._config,
            sizes=sizes,
            sources=sources,
            security=self._security,
            check_credential=check_credential,
            now=now,
        )
        self._openings[opening.number] = self._opening_contexts[opening.own_context] = opening
        self._ready[opening.number] = None
        return opening.number

    def post(self, peer: int, wr: WorkRequest) -> None:
        """Post a work request. It ends with a Completion for `wr.request`, whatever happens.

        A request that cannot be carried out completes at once, with a LOCAL_ERROR status or REMOTE_ERROR_BAD_LENGTH.
        Raises UsageError for a peer that is not open yet or is being closed, and for values that do not fit into a
        packet.
        """
        core = self._peers.get(peer)
        if core is None:
            if peer in self._openings:
                raise UsageError(f"peer {peer} is not open for sending")
            self._events.append(Completion(peer, wr.request, Status.LOCAL_ERROR_INVALID_AH))
            return
        sender = core.open_sender()
        wr.check()
        status = wr.refusal(max_send_bytes=sender.max_message_bytes, memory=self._shared.memory)
        if status is not None:
            self._events.append(Completion(peer, wr.request, status))
            return
        sender.queue.post(wr)
        core.control_due |= sender.asks
        self._ready[peer] = None

    def post_batch(self, peer: int, batch: BatchRequest) -> None:
        """Post a batch of sends: each ends with a Completion or as part of a BatchCompletion. Raises as `post` does."""
        core = self.peer(peer)
        sender = core.open_sender()
        batch.check(packet_bytes=sender.segment_bytes)
        sender.queue.post_batch(batch)
        core.control_due |= sender.asks
        self._ready[peer] = None

    def cancel(self, peer: int, *, request: int, now: float) -> None:
        """End a request now, with FLUSHED; a request that has ended is not changed.

        If any of it is missing at the responder, the responder never delivers it; a message whose packets are all in
        flight may still arrive.
        """
        if (core := self._peers.get(peer)) is not None:
            core.cancel(request)
            self._after(core, now=now)

    def flush(self, peer: int, *, now: float) -> None:
        """End every open request of a peer with FLUSHED."""
        if (core := self._peers.get(peer)) is not None:
            core.flush()
            self._after(core, now=now)

    def abandon(self, peer: int, *, status: Status, reason: str, now: float) -> None:
        """End a peer at once: its requests, then the peer, end with this status; nothing more is sent to it."""
        if (core := self._peers.get(peer)) is not None:
            core.end(status, reason=reason)
            self._after(core, now=now)
        elif (opening := self._openings.get(peer)) is not None:
            self._end_opening(opening, status, reason=reason, now=now)

    def on_deregistered(self, is_withdrawn: Callable[[int], bool], *, now: float) -> None:
        """Note that registrations of this end no longer exist, by key: their users end in error, at both ends."""
        for core in list(self._peers.values()):
            core.on_deregistered(is_withdrawn)
            self._after(core, now=now)

    def release(self, peer: int, *, size_bytes: int, messages: int, now: float) -> None:
        """Return the credit of delivered messages; ignored for a peer that no longer exists.

        For a part of a message `messages` is 0; for a notified write `size_bytes` is 0.
        """
        if core := self._peers.get(peer):
            core.receiver.acks.release(size_bytes, messages=messages, now=now)
            core.control_due = True
            self._ready[peer] = None

    def close(self, peer: int, *, now: float) -> None:
        """Close a peer in an orderly way, after what was posted; ends with PeerEnded."""
        if (opening := self._openings.get(peer)) is not None:
            self._end_opening(opening, Status.FLUSHED, reason="closed before it was open", now=now)
            return
        core = self.peer(peer)
        core.close(now=now)
        self._after(core, now=now)

    def stop_accepting(self) -> None:
        """Refuse the peers that others would open from now on."""
        self._stateless.accepting = False

    def accepted(self, peer: int) -> None:
        """Note that the application has accepted an incoming peer, or never will: it stops counting as waiting."""
        self._unaccepted.discard(peer)

    def peer(self, number: int) -> PeerCore:
        """Return a peer, until its PeerEnded was delivered. Raises UsageError if it is not made yet, or has ended."""
        peer = self._peers.get(number) or self._ended.get(number)
        if peer is None:
            raise UsageError(f"peer {number} {'is not open yet' if number in self._openings else 'has ended'}")
        return peer

    @property
    def datagram_bytes(self) -> int:
        """The largest datagram that this end sends or receives."""
        return self._datagram_bytes

    @property
    def open_peers(self) -> list[int]:
        """Numbers of the peers that have not ended, whether open yet or not."""
        return [*self._openings, *self._peers]

    @property
    def contexts(self) -> Container[int]:
        """A live view of the contexts that packets of open peers carry."""
        return self._by_context.keys()

    # -- input --------------------------------------------------------------------------------------------------

    def handle_packets(
        self,
        datagrams: Iterable[GroDatagram],
        *,
        controls: Iterable[tuple[bytes, Address, float]],
        now: float,
        no_memory: Iterable[int] = (),
        low_region: int | None = None,
    ) -> ReceiveResult:
        """Process a batch: data packets, and control packets as (bytes, source address, time of receipt).

        `no_memory`: the contexts of data packets that were dropped for lack of memory. `low_region`: the region that
        the data landed in, when it has less memory left than the longest message may need.
        """
        result = ReceiveResult()
        touched: dict[int, PeerCore] = {}
        admission = None
        if low_region is not None:
            admission = self._admissions.setdefault(low_region, MemoryAdmission(low_region))
            relieved = admission.evict_stalled(self._peers, now=now, stalled_after_s=self._config.stalled_after_s)
            touched = {peer.number: peer for peer in relieved}
        for datagram in datagrams:
            for burst in received_bursts_untrusted(datagram):
                if (peer := self._peer_of(burst, keys=datagram.context)) is None:
                    continue
                touched[peer.number] = peer
                peer.confirm()
                if admission is not None and not admission.admits(peer, burst, peers=self._peers, now=now):
                    peer.refuse(burst, now=now)
                    result.refused_packets += burst.count
                else:
                    result.kept += peer.handle_burst(burst, now=now)
        self._handle_acks_untrusted(now=now)
        for peer in touched.values():
            self._after(peer, now=now)
        if touched:
            self.expects_more_data = any(peer.receiver.expects_more_data for peer in touched.values())
            self._has_incomplete = any(peer.receiver.incomplete for peer in touched.values())
        self._handle_controls(controls, now=now)
        if self._pulls.is_crowded or self._pulls.due:
            self._take_turns(now=now)
        for context in no_memory:
            if (peer := self._by_context.get(context)) is not None:
                peer.on_no_memory(now=now)
                self._after(peer, now=now)
        if self._copies:
            result.copies += self._copies
            self._copies.clear()
        return result

    def _peer_of(self, burst: ReceivedBurst, *, keys: int | None) -> PeerCore | None:
        """Return the peer that a received burst is of, if it is open; `keys`: the context that has opened it.

        None if it overtook the responder's ACCEPT, and will be sent again, or if its peer has ended: then its sender's
        next PROBE is answered with RESET. Whatever its header says, it is of no peer but that of the keys.
        """
        if self._security is not None and burst.context != keys:
            self.malformed += 1
            return None
        peer = self._by_context.get(burst.context)
        if peer is None or peer.state is PeerState.ENDED:
            return None
        if burst.flags & WITH_ACK and not self._take_ack_untrusted(burst, peer):
            self.malformed += 1
            return None
        return peer

    def _take_ack_untrusted(self, burst: ReceivedBurst, peer: PeerCore) -> bool:
        """Take the ACK behind a message, so that the burst is one without; return whether that is what it has."""
        ack_bytes = burst.payload_bytes - burst.length
        if burst.count != 1 or burst.flags & (OPCODE_BITS | ABORTED) or ack_bytes <= 0:
            return False
        burst.flags &= ~WITH_ACK
        burst.payload_bytes = burst.segment_bytes = burst.length
        if self._shared.read is not None:
            try:
                ack = decode_untrusted(self._shared.read(burst.payload_offset + burst.length, ack_bytes))
            except PacketError:
                return False
            if not isinstance(ack, Ack) or ack.context != burst.context:
                return False
            self._acks.append((peer, ack, burst.received_at))
        return True

    def _handle_acks_untrusted(self, *, now: float) -> None:
        """Process the ACKs that came with data."""
        if not self._acks:
            return
        acks, self._acks = self._acks, []
        for peer, ack, received_at in acks:
            if peer.state is PeerState.ENDED:  # by what came with it
                continue
            try:
                peer.handle_ack(ack, now=now, received_at=received_at)
            except PacketError:
                self.malformed += 1

    def _take_turns(self, *, now: float) -> None:
        """Pull from the peers whose turn it is."""
        self._pulls.take_turns(now=now)
        for number in self._pulls.due:
            self._peers[number].control_due = True
            self._ready[number] = None
        self._timers.arm(_PULLS, at=self._pulls.check_at)

    def _handle_controls(self, controls: Iterable[tuple[bytes, Address, float]], *, now: float) -> None:
        for data, address, received_at in controls:
            try:
                self._handle_control_untrusted(decode_untrusted(data), address, now=now, received_at=received_at)
            except PacketError:
                self.malformed += 1
                self._stateless.on_malformed(data, address)

    def _unprotect_untrusted(self, packet: Control, *, now: float) -> Control:
        """Return a control packet as plain text. Raises PacketError if it is not authentic, or has to be protected."""
        if self._security is None:
            return packet
        if not isinstance(packet, Protected):
            if isinstance(packet, (*INNER_TYPES, Accept)):
                raise PacketError("a packet that has to be protected is not")
            return packet
        peer = self._by_context.get(packet.context)
        if peer is None or peer.protection is None:
            return packet
        inner = decode_untrusted(peer.protection.open_control_untrusted(packet.data, now=now))
        if not isinstance(inner, INNER_TYPES) or inner.context != packet.context:
            raise PacketError("a protected packet has a content that none has")
        peer.confirm()
        return inner

    def _handle_control_untrusted(self, packet: Control, address: Address, *, now: float, received_at: float) -> None:
        packet = self._unprotect_untrusted(packet, now=now)
        if isinstance(packet, Hello):
            self._handle_hello(packet, address, now=now)
            return
        if isinstance(packet, Reset) and self._security is not None:
            self._handle_reset_token(packet, now=now)
            return
        peer = self._by_context.get(packet.context)
        if peer is None:
            if (opening := self._opening_contexts.get(packet.context)) is not None:
                self._handle_answer(opening, packet, now=now)
            else:
                self._stateless.on_unknown_context(packet, address)
            return
        if isinstance(packet, Probe | Close | Closed | Reset) and packet.own_context != peer.remote_context:
            return  # its sender knows only one of the two contexts, and so is not the other end
        match packet:
            case Close() | Closed() | Reset():
                self._handle_end(peer, packet, address, now=now)
            case Retry() | Accept() | SecureAccept() | Refuse() | Protected():
                pass  # too late: the peer is open; or there are no keys to open it
            case _:
                peer.handle_control(packet, address, now=now, received_at=received_at)
        self._after(peer, now=now)

    def _handle_reset_token(self, packet: Reset, *, now: float) -> None:
        """Process a RESET that has a token instead of the context that this end chose."""
        for peer in self._by_reset.get(packet.own_context, ()):
            if hmac.compare_digest(packet.token, peer.reset_token):
                peer.handle_reset()
                self._after(peer, now=now)
                return

    def _handle_end(self, peer: PeerCore, packet: Close | Closed | Reset, address: Address, *, now: float) -> None:
        if isinstance(packet, Close):
            closed = Closed(packet.own_context, packet.context).encode()
            self._stateless.reply(address, peer.control(address, 0, closed, now=now).data)
            peer.end(Status.OK, reason="closed by the other end")
        elif isinstance(packet, Closed):
            peer.handle_closed()
        else:
            peer.handle_reset()

    def _handle_answer(self, opening: PeerOpening, packet: Control, *, now: float) -> None:
        """Process the answer to a HELLO of this end. All else is none: there is no peer yet."""
        if isinstance(packet, Retry):
            opening.retry(packet, now=now)
            self._ready[opening.number] = None
        elif isinstance(packet, Refuse):
            status, reason = refusal_of(packet)
            if opening.failure:  # what an answer before it was ignored for
                reason = f"{reason}; {opening.failure}"
            self._end_opening(opening, status, reason=reason, now=now)
        elif isinstance(packet, Accept | SecureAccept):
            try:
                accepted, secured = opening.accepted_untrusted(packet, now=now)
            finally:
                self._ready[opening.number] = None  # a failure ends the attempt sooner
            self._forget_opening(opening)
            peer = self._make(
                opening.number,
                address=opening.address,
                own_context=opening.own_context,
                packet=accepted,
                secured=secured,
                opening=opening,
                now=now,
            )
            self._after(peer, now=now)

    def _forget_opening(self, opening: PeerOpening) -> None:
        del self._openings[opening.number], self._opening_contexts[opening.own_context]

    def _end_opening(self, opening: PeerOpening, status: Status, *, reason: str, now: float) -> None:
        """End an attempt to open a peer."""
        self._events.append(PeerEnded(opening.number, status, reason, ()))
        if self._trace is not None:
            self._trace_events(now=now)
        self._forget_opening(opening)
        self._leave_host(opening.address)
        self._ready.pop(opening.number, None)
        self._timers.arm(opening.number, at=None)

    def _handle_hello(self, hello: Hello, address: Address, *, now: float) -> None:
        peer = self._by_remote.get(hello.own_context)
        if peer is None:
            has_room = self._has_room(address) or self._may_displace(address)
            if not self._stateless.validate_address(hello, address, now=now, has_room=has_room):
                return
            if (peer := self._accept_untrusted(hello, address, now=now)) is None:
                return
        elif peer.address != address:
            return  # this end's context is sent only to the validated address of the initiator
        if peer.accept:  # else the initiator has it, as an authentic packet showed
            self._stateless.answer(hello, address, peer.accept)

    def _accept_untrusted(self, hello: Hello, address: Address, *, now: float) -> PeerCore | None:
        """Make the peer of a HELLO with a valid cookie, or refuse it. Raises PacketError if it is not authentic."""
        response = displaced = None
        if not self._has_room(address) and (displaced := self._unconfirmed.displaced_by(address)) is None:
            self._stateless.refuse(hello, address, status=Status.REMOTE_ERROR_RNR)
            return None
        if self._security is not None:
            response = self._security.respond_untrusted(hello.message, transcript=hello.transcript)
            if not response.is_authorized:
                status, reason = Status.REMOTE_ERROR_BAD_DEST_QPN, RefuseReason.NOT_AUTHORIZED
                self._stateless.refuse(hello, address, status=status, reason=reason)
                return None
        if not self._stateless.spend_cookie(hello, address, now=now):
            return None
        if displaced is not None:
            self.abandon(displaced, status=Status.LOCAL_ERROR_UNREACH_REMOTE, reason="not confirmed in time", now=now)
        number, context, secured = self._take_number(address), self._shared.new_token(), None
        packet = accept(hello, address, context=context, config=self._config, datagram_bytes=self._datagram_bytes)
        answer = packet.encode()
        if response is not None:
            message, secured = response.write(packet.body, context=context, now=now)
            answer = SecureAccept(hello.own_context, message).encode()
            self._unconfirmed.add(number, address=address)
        self._unaccepted.add(number)
        peer = self._by_remote[hello.own_context] = self._make(
            number, address=address, own_context=context, packet=hello, secured=secured, opening=None, now=now
        )
        peer.accept = answer
        self._after(peer, now=now)
        return peer

    def _has_room(self, address: Address) -> bool:
        """Whether one more peer may be opened from `address`."""
        return (
            len(self._peers) + len(self._openings) < self._config.max_peers
            and len(self._unaccepted) < self._config.max_unaccepted_peers
            and self._hosts.get(host_of(address), 0) < self._config.max_peers_per_address
        )

    def _may_displace(self, address: Address) -> bool:
        """Whether one more peer from `address` may take the place of another, as far as that is found out quickly."""
        return bool(self._unconfirmed) and self._hosts.get(host_of(address), 0) < self._config.max_peers_per_address

    def handle_icmp_unreachable(self, address: Address, *, now: float) -> None:
        """Process ICMP "port unreachable" from `address`: no peer is there; a peer that was there may have died."""
        for opening in list(self._openings.values()):
            if opening.address == address:
                status, reason = Status.LOCAL_ERROR_UNREACH_REMOTE, "nothing listens there (port unreachable)"
                self._end_opening(opening, status, reason=reason, now=now)
        if self._config.unresponsive_after_s <= REFUSED_S:
            return
        for peer in self._peers.values():
            if peer.address == address:
                peer.on_refused()
                self._after(peer, now=now)

    def handle_icmp_too_big(self, address: Address, *, size_bytes: int) -> None:
        """Process ICMP "packet too big" about `address`: a link on the way passes datagrams of `size_bytes` at most.

        It has an effect only while a peer is being opened: later a size that does not pass shows by its losses.
        """
        for opening in self._openings.values():
            if opening.address == address:
                opening.add_size(size_bytes)

    def handle_timeout(self, now: float) -> None:
        """Process the timeouts that are due."""
        for number in self._timers.expired(now):
            if peer := self._peers.get(number):
                peer.handle_timeout(now=now)
                self._after(peer, now=now)
            elif opening := self._openings.get(number):
                self._ready[number] = None
                if now >= opening.give_up_at:
                    reason = opening.failure or f"no answer within {self._config.handshake_timeout_s:g} s"
                    self._end_opening(opening, Status.LOCAL_ERROR_UNREACH_REMOTE, reason=reason, now=now)
        if self._pulls.is_crowded:
            self._take_turns(now=now)

    # -- output -------------------------------------------------------------------------------------------------

    def poll_transmit(
        self, now: float, *, data_only: bool = False, most_packets: int = MAX_BURST_PACKETS
    ) -> Burst | Datagram | None:
        """Return the next thing to send. `data_only`: no control packets, which remain due.

        `most_packets`: of a burst; 0: data is held back, `holds_data` is whether there is any.
        """
        if self._stateless.replies and not data_only:
            return self._stateless.replies.popleft()
        if self._held and most_packets:
            self._ready, self._held = {**self._held, **self._ready}, {}  # they keep their turns
        if self._without_data and not data_only:
            self._ready, self._without_data = {**self._without_data, **self._ready}, {}
        while self._ready:
            number = next(iter(self._ready))
            del self._ready[number]
            if (peer := self._peers.get(number)) is None:
                out: Burst | Datagram | None = None if data_only else self._poll_hello(number, now=now)
            else:
                out = self._poll_peer(peer, data_only=data_only, most_packets=most_packets, now=now)
            if out is not None:
                self._ready[number] = None  # to the end of the queue
                return out
            if data_only:
                self._without_data[number] = None  # looked at again when control packets go, too
            elif peer is not None:
                if not most_packets and peer.is_held:
                    self._held[number] = None
                self._timers.arm(number, at=peer.poll_timeout(now=now))
        return None

    def _poll_peer(self, peer: PeerCore, *, data_only: bool, most_packets: int, now: float) -> Burst | Datagram | None:
        """Return the next thing to send to a peer."""
        if data_only or not peer.control_due or peer.acks_wait_for_data:
            burst = peer.poll_burst(now=now, most_packets=most_packets)
            if burst is not None or data_only or not peer.control_due:
                return burst
        packet = peer.poll_control(now=now)
        peer.control_due = packet is not None
        return packet or peer.poll_burst(now=now, most_packets=most_packets)

    def _poll_hello(self, number: int, *, now: float) -> Datagram | None:
        """Return the next HELLO of a peer that this end opens."""
        if (opening := self._openings.get(number)) is None:
            return None  # it has ended
        if (hello := opening.poll_hello(now=now)) is None:
            self._timers.arm(number, at=opening.wake_at)
            return None
        return Datagram(opening.address, hello.path, hello.encode())

    @property
    def awaits_rest(self) -> bool:
        """Whether the last batch of data left a message incomplete, and there is nothing to deliver."""
        return self._has_incomplete and not self._events

    @property
    def holds_data(self) -> bool:
        """Whether a peer would send now, but for `most_packets`. Valid once `poll_transmit` has returned None."""
        return bool(self._held)

    def still_needed(self, burst: Burst, *, peer: int) -> bool:
        """Whether a burst may still be sent after requests of `peer` have completed; not if it may read their memory.

        After a peer has ended any burst may read that memory.
        """
        core = self._peers.get(peer)
        if core is None:
            return False
        if core.remote_context != burst.context:
            return True
        return not core.sender.acknowledged(burst.psn, count=burst.count)

    def poll_timeout(self) -> float | None:
        """When `handle_timeout` is to be called. Valid once `poll_transmit` has returned None."""
        return self._timers.next_at()

    def poll_event(self) -> Event | None:
        """Return the next event."""
        if not self._events:
            return None
        event = self._events.popleft()
        self._traced = max(self._traced - 1, 0)
        if isinstance(event, PeerEnded):
            self._ended.pop(event.peer, None)
        return event

    # -- peers --------------------------------------------------------------------------------------------------

    def _take_number(self, address: Address) -> int:
        """Return the number of a new peer, and count it for its host."""
        host = host_of(address)
        self._hosts[host] = self._hosts.get(host, 0) + 1
        self._next_number += 1
        return self._next_number - 1

    def _leave_host(self, address: Address) -> None:
        """Count a peer that has ended for its host."""
        host = host_of(address)
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]

    def _make(
        self,
        number: int,
        *,
        address: Address,
        own_context: int,
        packet: Hello | Accept,
        secured: Secured | None,
        opening: PeerOpening | None,
        now: float,
    ) -> PeerCore:
        """Make a peer by the packet that completed the handshake at this end."""
        if secured is not None:
            secured.protection.on_contexts(own=own_context, remote=packet.own_context)
        peer = PeerCore(
            number,
            shared=self._shared,
            address=address,
            own_context=own_context,
            packet=packet,
            datagram_bytes=min(packet.datagram_bytes, self._datagram_bytes),
            secured=secured,
            opening=opening,
            trace=None if self._trace is None else PeerTrace(self._trace, number=number),
            now=now,
        )
        if secured is not None:
            self.protections[own_context] = secured.protection
            self._by_reset.setdefault(packet.own_context, []).append(peer)
        self._peers[number] = self._by_context[own_context] = peer
        self._pulls.on_peers(self._peers)
        return peer

    def _after(self, peer: PeerCore, *, now: float) -> None:
        """Trace what has happened, queue the peer for transmission, and remove it when it has ended."""
        if self._trace is not None:
            self._trace_events(now=now)
        if self._unconfirmed and (peer.is_confirmed or peer.state is PeerState.ENDED):
            self._unconfirmed.discard(peer.number)
        if peer.state is not PeerState.ENDED:
            peer.control_due = True
            self._ready[peer.number] = None
        elif self._peers.pop(peer.number, None):
            self._ended[peer.number] = peer
            self._leave_host(peer.address)
            del self._by_context[peer.own_context]
            self._forget_remote(peer)
            self.protections.pop(peer.own_context, None)
            if not peer.is_confirmed:
                self._unaccepted.discard(peer.number)
            self._ready.pop(peer.number, None)
            self._held.pop(peer.number, None)
            self._shared.active_peers.busy.discard(peer.number)
            self._pulls.forget(peer.number, left=self._peers)
            self._timers.arm(peer.number, at=None)

    def _forget_remote(self, peer: PeerCore) -> None:
        """Remove a peer from the tables by the context that its other end chose."""
        context = peer.remote_context
        if self._by_remote.get(context) is peer:
            del self._by_remote[context]
        if peer in (alike := self._by_reset.get(context, [])):
            alike.remove(peer)
            if not alike:
                del self._by_reset[context]

    def _trace_events(self, *, now: float) -> None:
        """Record the events since the last call in the traces of their peers."""
        for event in islice(self._events, self._traced, None):
            peer = self._peers.get(event.peer)
            if peer is not None and peer.trace is not None:
                peer.trace.event(event, datagram_bytes=peer.datagram_bytes, paths=self._config.paths, now=now)
            elif self._trace is not None and event.peer in self._openings:
                trace = PeerTrace(self._trace, number=event.peer)
                trace.event(event, datagram_bytes=0, paths=self._config.paths, now=now)
        self._traced = len(self._events)
