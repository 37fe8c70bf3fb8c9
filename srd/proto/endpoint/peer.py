"""The state kept for one remote endpoint: sending and receiving halves, keepalive, closing.

Its states and their transitions are in `endpoint.peer_state`.

An incoming peer with a `Security` is confirmed, and so open, with its first authentic packet: it shows that the
initiator has the keys. Until then nothing is sent to it but the ACCEPT, when a HELLO asks again.

What a peer waits for is a `Timer`; the state says which timers run, and `deadline` when one fires.
Keepalive probes, and when a peer is unresponsive, are in `proto.keepalive`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final

from srd.proto.base.errors import UsageError
from srd.proto.base.security import PacketProtection, Secured
from srd.proto.congestion.limits import InflightLimit
from srd.proto.endpoint.handshake import PeerOpening, is_translated
from srd.proto.endpoint.keepalive import Keepalive
from srd.proto.endpoint.peer_state import TIMERS, TRANSITIONS, PeerEvent, PeerState, Timer
from srd.proto.events import (
    Extent,
    PeerEnded,
    PeerOpened,
)
from srd.proto.paths.mappings import Mappings
from srd.proto.paths.path import Path
from srd.proto.paths.validation import AddressValidation
from srd.proto.peer_trace import PeerTrace
from srd.proto.recv.acks import Acks
from srd.proto.recv.receiver import Receiver
from srd.proto.recv.responder import Responder
from srd.proto.recv.shared import Shared
from srd.proto.send.sender import Sender
from srd.proto.wire.control import (
    Accept,
    Ack,
    Close,
    Datagram,
    Hello,
    Inner,
    Nack,
    PathChallenge,
    PathResponse,
    Probe,
    Pull,
    PullRequest,
)
from srd.proto.wire.data import (
    ABORTED,
    HEADER_BYTES,
    MAX_BURST_PACKETS,
    OPCODE_BITS,
    WITH_ACK,
    Address,
    Burst,
    ReceivedBurst,
)
from srd.proto.wire.protected import CONTROL_OVERHEAD_BYTES, STAGE_BYTES, TAG_BYTES
from srd.proto.wire.status import Status, refusal_untrusted

CLOSE_ATTEMPTS: Final = 5
"""CLOSE packets sent before the peer counts as closed; the back-off doubles with each."""
LONG_START_RTTS: Final = 2.5
"""Longest round trip that a path may have, in the round trips that are assumed at first: its first timeout is three."""
CONFIRM_S: Final = 4.0
"""Time within which an initiator has to confirm its keys, or that of the handshake if it is less. It holds a place of
`max_unaccepted_peers` until then, so this is short: two round trips over a satellite behind full buffers."""


class PeerCore:
    """One peer, from the packet that completed the handshake at this end. Driven by `EndpointCore`."""

    def __init__(
        self,
        number: int,
        *,
        shared: Shared,
        address: Address,
        own_context: int,
        packet: Hello | Accept,
        datagram_bytes: int,
        secured: Secured | None,
        opening: PeerOpening | None,
        trace: PeerTrace | None,
        now: float,
    ) -> None:
        """Take the packet that completed the handshake, its keys, and its attempt at the initiator, None: incoming."""
        config = shared.config
        self.number = number
        self.trace = trace
        self.address = address
        self.own_context, self.remote_context = own_context, packet.own_context
        self.datagram_bytes = datagram_bytes
        self.state = PeerState.OPENING
        self._timers = TIMERS[self.state]
        self.protection: PacketProtection | None = None  # None: plain text
        self.credential = self.reset_token = b""
        if secured is not None:
            self.protection = secured.protection
            self.credential = secured.credential  # the other end's public key or certificate, if it proves something
            self.reset_token = secured.reset_token  # of the other end
        self.accept = b""  # the ACCEPT that a HELLO gets; with keys until the peer is confirmed
        self.ended: tuple[Status, str] | None = None  # how and why it has ended
        self.acks_go_with_data = shared.read is not None  # whether the other end can carry them, too
        self.control_due = True  # an event occurred since `poll_control` last returned None
        self._config, self._pulls, self._events = config, shared.pulls, shared.events
        self._closes = 0
        self._ack_address: Address | None = None  # of the last ack, which CLOSE follows
        self._ack_path = 0
        self._close_at = 0.0
        self._is_incoming = opening is None
        self._confirm_by = math.inf  # when an incoming peer that was not confirmed ends
        self._responses: dict[int, int] | None = None  # by path of this end: tokens to be returned over it
        self._mappings: Mappings | None = None  # of a NAT in front of this end
        self._make_halves(shared, packet)
        self._note_nat(packet, now=now)
        max_rtt_s = math.inf if opening is None else self._note_round_trip(opening, now=now)
        self._keepalive = Keepalive(
            config,
            receiver=self.receiver,
            sender=self.sender,
            active_peers=shared.active_peers,
            max_rtt_s=max_rtt_s,
            now=now,
        )
        if secured is not None and self._is_incoming:
            self._confirm_by = now + min(CONFIRM_S, config.handshake_timeout_s)
            return
        if secured is not None:
            self._keepalive.confirm()
        self._open()

    def _make_halves(self, shared: Shared, packet: Hello | Accept) -> None:
        """Make the sending and the receiving half."""
        config = shared.config
        is_secure = self.protection is not None
        plain_bytes = self.datagram_bytes - TAG_BYTES * is_secure  # of header and payload
        overhead_bytes = CONTROL_OVERHEAD_BYTES * is_secure
        self.addresses = AddressValidation(
            self.address, paths=config.paths, may_move=config.may_move, new_token=shared.new_token
        )
        self.acks = Acks(config, addresses=self.addresses, overhead_bytes=overhead_bytes)
        self.receiver = Receiver(config, acks=self.acks, segment_bytes=plain_bytes - HEADER_BYTES)
        self.sender = Sender(
            self.number,
            config=config,
            events=shared.events,
            addresses=self.addresses,
            context=self.remote_context,
            datagram_bytes=plain_bytes,
            ack_bytes=self.datagram_bytes - overhead_bytes,
            burst_bytes=STAGE_BYTES if is_secure else None,
            protection=self.protection,
            credit_bytes=packet.credit_bytes,
            credit_messages=packet.credit_messages,
            max_message_bytes=packet.max_message_bytes,
            window_packets=packet.window_packets,
            inflight_limit=InflightLimit(
                config.min_inflight_limit_bytes,
                datagram_bytes=plain_bytes,
                active_peers=shared.active_peers,
                number=self.number,
            ),
            rng=shared.rng,
            trace=self.trace,
        )
        self.responder = Responder(
            self.number, shared=shared, receiver=self.receiver, send_queue=self.sender.queue, trace=self.trace
        )

    def _note_nat(self, packet: Hello | Accept, *, now: float) -> None:
        """Note whether the initiator is behind a NAT."""
        if isinstance(packet, Accept):
            if packet.behind_nat:
                interval_s = self._config.nat_keepalive_s
                self._mappings = Mappings(paths=self._config.paths, interval_s=interval_s, now=now)
        elif is_translated(packet, self.address):
            self.acks.on_nat(packet.path, remote_paths=packet.paths)

    @property
    def behind_nat(self) -> bool:
        """Whether a NAT is in front of the initiator, which is this end or the other one."""
        return self._mappings is not None or self.addresses.behind_nat

    def _note_round_trip(self, opening: PeerOpening, *, now: float) -> float:
        """Note what the handshake tells of the round trip, at the initiator; return the longest that it can be."""
        max_rtt_s = opening.max_round_trip_s(now=now)
        if (round_trip_s := opening.round_trip_s(now=now)) is not None:
            self.sender.on_handshake_rtt(round_trip_s, now=now)
        elif max_rtt_s > LONG_START_RTTS * self._config.initial_rtt_s:
            self.sender.paths_start_with(max_rtt_s)
        return max_rtt_s

    @property
    def is_confirmed(self) -> bool:
        """Whether it was open: False for an incoming peer of which no authentic packet ever arrived."""
        return self._confirm_by == math.inf or not self.accept

    def confirm(self) -> None:
        """Note that an authentic packet arrived."""
        if self.state is PeerState.OPENING:
            self.accept = b""
            self._open()
        self._keepalive.on_confirmed()

    def _open(self) -> None:
        self._apply(PeerEvent.OPENED)
        self._pulls.on_opened(self.number)
        self._events.append(PeerOpened(self.number, self.address, self._is_incoming))

    def _apply(self, event: PeerEvent) -> None:
        """Change the state by an event."""
        self.state = TRANSITIONS.get((self.state, event), self.state)
        self._timers = TIMERS[self.state]

    # -- input --------------------------------------------------------------------------------------------------

    def handle_burst(self, burst: ReceivedBurst, *, now: float) -> list[Extent]:
        """Process received data; return the pieces of memory that are kept."""
        self._keepalive.on_packet(now=now)
        before_bytes = self.receiver.landed_bytes
        kept = self.responder.handle(burst, now=now)
        if self._pulls.is_crowded:
            received_bytes = self.receiver.received_bytes
            self._pulls.on_data(self.number, burst_bytes=burst.payload_bytes, received_bytes=received_bytes, now=now)
        if self.trace is not None:
            kept_bytes = self.receiver.landed_bytes - before_bytes
            self.trace.data_received(burst, kept_bytes=kept_bytes, incomplete=self.receiver.incomplete, now=now)
        if self.receiver.protocol_error:
            self.end(Status.REMOTE_ERROR_ABORT, reason=self.receiver.protocol_error)
        return kept

    def refuse(self, burst: ReceivedBurst, *, now: float) -> None:
        """Record data that admission control refuses."""
        self._keepalive.on_packet(now=now)
        self.receiver.refuse(burst, now=now)
        self._pulls.on_refused(self.number, now=now)
        self.receiver.send_not_ready(now=now)

    @property
    def waits_for_pull(self) -> bool:
        """Whether it is this end that lets the other end's data wait."""
        return self._pulls.waits(self.number)

    def on_no_memory(self, *, now: float) -> None:
        """Record that data of the peer was dropped for lack of memory."""
        self._keepalive.on_packet(now=now)
        self.receiver.on_no_memory(now=now)
        self._pulls.on_refused(self.number, now=now)

    def discard(self, messages: Iterable[int], *, now: float) -> None:
        """Discard incomplete sends of the peer: their memory is freed, and the peer gets an RNR refusal."""
        self.responder.discard(messages, now=now)

    def handle_control(self, packet: Inner, address: Address, *, now: float, received_at: float) -> None:
        """Process a control packet, unless it ends the peer. Raises PacketError if it cannot be true."""
        match packet:
            case Ack():
                self.handle_ack(packet, now=now, received_at=received_at)
            case Nack():
                self._handle_nack(packet, now=now)
            case Probe():
                self._handle_probe(packet, address=address, now=now, received_at=received_at)
            case PathChallenge() if self.sender.has_used(packet.remote_path):
                if self._responses is None:
                    self._responses = {}
                self._responses[packet.remote_path] = packet.token
                if self._mappings is not None:
                    self._mappings.on_challenge(now=now)
            case PathResponse():
                self._handle_response(packet, address=address, now=now)
            case PullRequest():
                self._handle_pull_request(packet, now=now)
            case Pull():
                self._handle_pull(packet, now=now)

    def _handle_response(self, response: PathResponse, *, address: Address, now: float) -> None:
        """Process the answer to a challenge."""
        if not self.addresses.on_response(response.path, token=response.token, address=address):
            return
        self.sender.on_valid_address(response.path, now=now)
        if self.addresses.other_address is not None:
            self._keepalive.ask(now=now)

    def handle_ack(self, ack: Ack, *, now: float, received_at: float) -> None:
        """Process an ack. Raises PacketError if it cannot be true."""
        is_answer = self.sender.handle_ack(ack, now=now, received_at=received_at)
        if self.protection is not None:
            self.protection.rtt_s = self.sender.rtt_s
        self._keepalive.on_packet(is_answer=is_answer, now=now)
        self.sender.queue.fail_unready()

    def on_refused(self) -> None:
        """Note that an ICMP error says that its port is closed."""
        self._keepalive.on_refused()

    def _handle_pull_request(self, request: PullRequest, *, now: float) -> None:
        """Process a request to send."""
        self._keepalive.on_packet(now=now)
        if self.state is not PeerState.OPENING:
            received_bytes = self.receiver.received_bytes
            self._pulls.on_request(
                self.number, request, packet_bytes=self.datagram_bytes, received_bytes=received_bytes
            )

    def _handle_pull(self, pull: Pull, *, now: float) -> None:
        """Process a PULL."""
        self._keepalive.on_packet(now=now)
        self.sender.handle_pull(pull, now=now)

    def open_sender(self) -> Sender:
        """Return the sending half. Raises UsageError for a peer that is not open."""
        if self.state is not PeerState.OPEN:
            raise UsageError(f"peer {self.number} is not open for sending")
        return self.sender

    def _handle_nack(self, nack: Nack, *, now: float) -> None:
        """Process a refusal of a message."""
        self._keepalive.on_packet(is_answer=True, now=now)
        self.sender.queue.on_nack(nack.message, status=refusal_untrusted(nack.status))

    def handle_closed(self) -> None:
        """Process a CLOSED: the other end does not know this peer, which is what the CLOSE requested."""
        if self.state is PeerState.CLOSING:
            self.end(Status.OK, reason="closed")

    def handle_reset(self) -> None:
        """Process a RESET: the other end does not know this peer any more. Never an orderly end.

        In plain text it is ignored after a CLOSE was sent: the other end may have received the CLOSE, and its CLOSED
        may be lost. The next CLOSE is answered, with CLOSED. With keys that answer is this RESET.
        """
        if self.state is PeerState.CLOSING:
            if self.protection is not None:
                self.end(Status.OK, reason="closed")
        else:
            self.end(Status.REMOTE_ERROR_UNKNOWN_PEER, reason="the other end has no state of this peer any more")

    def cancel(self, request: int) -> None:
        """End a request with FLUSHED, if it is open."""
        if (message := self.sender.queue.by_request(request)) is not None:
            self.sender.queue.abort(message, status=Status.FLUSHED)

    def flush(self) -> None:
        """End every open request with FLUSHED."""
        self.sender.queue.flush(status=Status.FLUSHED)

    def on_deregistered(self, is_withdrawn: Callable[[int], bool]) -> None:
        """End what uses a registration of this end that no longer exists."""
        self.sender.queue.on_deregistered(is_withdrawn)

    def _handle_probe(self, probe: Probe, *, address: Address, now: float, received_at: float) -> None:
        """Process a probe: the ack that it requests is due."""
        self._keepalive.on_packet(now=now)
        self.acks.on_probe(probe, address=address, now=now, received_at=received_at)

    def end(self, status: Status, *, reason: str) -> None:
        """Complete all open requests with an error, and mark the peer ended."""
        if self.state is PeerState.ENDED:
            return
        self._apply(PeerEvent.END)
        self.ended = (status, reason)
        failed = Status.REMOTE_ERROR_ABORT if status is Status.OK else status
        self.sender.queue.flush(status=failed)
        self._events.append(PeerEnded(self.number, status, reason, self.receiver.release_all()))

    def close(self, *, now: float) -> None:
        """Close in an orderly way, once every request is done; a peer that never opened ends at once."""
        if self.state is PeerState.OPENING:
            self.end(Status.FLUSHED, reason="closed before it was open")
        elif self.state is PeerState.OPEN:
            self._apply(PeerEvent.CLOSE)
            self._close_at = now

    # -- time ---------------------------------------------------------------------------------------------------

    def handle_timeout(self, *, now: float) -> None:
        """Process the timeouts that are due."""
        if self.state is PeerState.OPENING and now >= self._confirm_by:
            self.end(Status.LOCAL_ERROR_UNREACH_REMOTE, reason="the initiator did not show that it has the keys")
        if self.state is PeerState.ENDED:
            return
        self.sender.handle_timeout(now=now)
        self.discard(self.receiver.overdue(now=now), now=now)
        if now - self.sender.mtu_blackhole_since() >= self._keepalive.unresponsive_after_s:
            reason = f"no path carries packets of {self.datagram_bytes} bytes any more"
            self.end(Status.LOCAL_ERROR_UNRESP_REMOTE, reason=reason)
            return
        timed_out = self._keepalive.is_unresponsive(now=now)
        if timed_out and self.state is PeerState.CLOSING:
            self.end(Status.OK, reason="closed; the other end did not confirm")
        elif timed_out:
            self.end(Status.LOCAL_ERROR_UNRESP_REMOTE, reason=self._keepalive.silence(now=now))
        elif self.state is PeerState.CLOSING and self._closes >= CLOSE_ATTEMPTS and now >= self._close_at:
            self.end(Status.OK, reason="closed; the other end did not confirm")

    def poll_timeout(self, *, now: float) -> float | None:
        """When to check again, if nothing arrives before."""
        if self.state is not PeerState.ENDED:
            self._start_timers(now=now)
        earliest_at = math.inf
        for timer in self._timers:
            earliest_at = min(earliest_at, self.deadline(timer, now=now))
        return None if earliest_at == math.inf else earliest_at

    def deadline(self, timer: Timer, *, now: float) -> float:
        """When a timer fires; infinite while it waits for nothing."""
        if timer is Timer.HANDSHAKE:
            return self._confirm_by
        if timer is Timer.ACK:
            return math.inf if self.acks.due_at is None else self.acks.due_at
        if timer is Timer.REASSEMBLY:
            return self.receiver.check_at
        if timer is Timer.KEEPALIVE:
            mappings_at = math.inf if self._mappings is None else self._mappings.due_at
            return min(self._keepalive.probe_at(), mappings_at)
        if timer is Timer.SEND:
            at = self.sender.poll_timeout(now=now)
            return math.inf if at is None else at
        return self._close_at if self.state is PeerState.CLOSING or self.sender.idle else math.inf

    def _start_timers(self, *, now: float) -> None:
        """Start the deadlines of what was posted since the last turn."""
        requests = self.sender.queue
        if (new := requests.start_timers(deadline_at=now + self._config.request_timeout_s)) and len(
            new
        ) == requests.count:
            self._keepalive.on_busy(now=now)
        for message in new:
            if self.trace is not None:
                self.trace.request_posted(message.wr, message=message.number, now=now)

    # -- output -------------------------------------------------------------------------------------------------

    def poll_control(self, *, now: float) -> Datagram | None:
        """Return the next control packet that is due."""
        if self.state in (PeerState.OPENING, PeerState.ENDED):
            return None
        self._start_timers(now=now)
        owed = self._poll_urgent_control(now=now) or self._poll_pull(now=now)
        if owed is not None:
            return owed
        if self.acks.due_at is not None and now >= self.acks.due_at:
            room_bytes = self.datagram_bytes - self.acks.overhead_bytes
            due = self.acks.poll(context=self.remote_context, now=now, room_bytes=room_bytes)
            if due is not None:
                ack, address, path = due
                self._ack_address, self._ack_path = address, path
                if self.trace is not None:
                    self.trace.ack_sent(ack, now=now)
                return self.control(address, path, ack.encode(), now=now)
        if probed := self.sender.poll_probe(now=now):
            return self._probe(*probed, now=now)
        if self._keepalive.poll_round(now=now):
            self._begin_round(now=now)
        if self._keepalive.take_probe():
            return self._probe(*self.sender.probe_any(round_robin=not self._keepalive.is_last_of_round), now=now)
        if self._mappings is not None and (number := self._mappings.poll(now=now)) is not None:
            return self._probe(*self.sender.probe_path(number), now=now)
        return self._poll_close(now=now)

    def _begin_round(self, *, now: float) -> None:
        """Begin a round of keepalive probes, at another address if the peer seems to be there."""
        if self.sender.credit_blocked:
            self.sender.queue.credit.on_credit_probe()
        if self._keepalive.seems_elsewhere(now=now) and self.addresses.move():
            self.sender.on_moved(now=now)
            self._keepalive.on_moved(now=now)

    @property
    def is_held(self) -> bool:
        """Whether the last call of `poll_burst` would have returned a burst, had it been allowed a packet."""
        return self.state is not PeerState.ENDED and self.sender.is_held

    def poll_burst(self, *, now: float, most_packets: int = MAX_BURST_PACKETS) -> Burst | None:
        """Return the next burst of data, of `most_packets` at most; 0: only find out whether there is one."""
        if self.state not in (PeerState.OPEN, PeerState.DRAINING):
            return None
        sender = self.sender
        resent = sender.retransmitted
        if (burst := sender.poll_burst(now=now, most_packets=most_packets)) and self.trace is not None:
            again = sender.retransmitted > resent
            self.trace.burst_sent(burst, retransmission=again, inflight_bytes=sender.inflight_bytes, now=now)
        if burst is not None and burst.count == 1 and self.acks.due_at is not None and self.acks_go_with_data:
            self._add_ack(burst, room_bytes=sender.segment_bytes - burst.payload_bytes, now=now)
        return burst

    @property
    def acks_wait_for_data(self) -> bool:
        """Whether a message goes before the control packets that are due, since the ack goes with it."""
        due = self.acks_go_with_data and self.acks.due_at is not None
        return due and self.sender.has_short_message

    def _add_ack(self, burst: Burst, *, room_bytes: int, now: float) -> None:
        """Let the ack that is due go with a message of one packet."""
        is_send = not burst.flags & (OPCODE_BITS | ABORTED) and burst.payload_addresses is None
        if not is_send or burst.payload_bytes != burst.length:
            return
        ack = self.acks.poll_with_data(context=self.remote_context, now=now, room_bytes=room_bytes)
        if ack is not None:
            burst.ack, burst.flags = ack.encode(), burst.flags | WITH_ACK
            self._ack_address, self._ack_path = burst.address, burst.port
            if self.trace is not None:
                self.trace.ack_sent(ack, now=now)

    def _poll_close(self, *, now: float) -> Datagram | None:
        if self.state is PeerState.DRAINING and self.sender.idle:
            self._apply(PeerEvent.DRAINED)
        if self.state is not PeerState.CLOSING or now < self._close_at or self._closes >= CLOSE_ATTEMPTS:
            return None
        wait_s = max(2 * self.sender.rtt_s, self._config.min_rto_s) * (1 << self._closes)
        self._close_at = now + min(wait_s, self._config.handshake_timeout_s)  # the round trip is what the peer says
        self._closes += 1
        close = Close(self.remote_context, self.own_context).encode()
        if self._closes == 1 and self._ack_address is not None:
            # After the ack: or what it acknowledges would fail there.
            return self.control(self._ack_address, self._ack_path, close, now=now)
        path, _ = self.sender.probe_any()
        return self._control_over(path.index, close, now=now)

    def _poll_urgent_control(self, *, now: float) -> Datagram | None:
        """Return what goes before an ack: a NACK, a PATH_RESPONSE, a PATH_CHALLENGE."""
        if self.responder.nacks:
            message, status = self.responder.nacks.popitem()
            return self._control_over(0, Nack(self.remote_context, message, status).encode(), now=now)
        if self._responses:
            path, token = self._responses.popitem()
            response = PathResponse(self.remote_context, token, path)
            return self._control_over(path, response.encode(), now=now)
        if self.addresses.due:
            overhead_bytes = self.acks.overhead_bytes
            asked = self.addresses.poll(context=self.remote_context, overhead_bytes=overhead_bytes, now=now)
            if asked is not None:
                challenge, address, path = asked
                return self.control(address, path, challenge.encode(), now=now)
        return None

    def _poll_pull(self, *, now: float) -> Datagram | None:
        """Return the PULL that the other end gets, or the request for one that this end needs."""
        if self._pulls.due and self.number in self._pulls.due:
            pull = self._pulls.poll(self.number, context=self.remote_context)
            return self._control_over(pull.path, pull.encode(), now=now)
        if (request := self.sender.poll_request(now=now)) is not None:
            return self._control_over(request.path, request.encode(), now=now)
        return None

    def _control_over(self, path: int, packet: bytes, *, now: float) -> Datagram:
        """Return a control packet as it is sent over a path."""
        return self.control(*self.addresses.destination(path), packet, now=now)

    def control(self, address: Address, path: int, packet: bytes, *, now: float) -> Datagram:
        """Return a control packet of this peer as it is sent, protected if there are keys."""
        if self.protection is not None:
            packet = self.protection.seal_control(packet, context=self.remote_context, now=now)
        return Datagram(address, path, packet)

    def _probe(self, path: Path, sequence: int, *, now: float) -> Datagram:
        ack_path = self.sender.queueing.ack_paths.best
        size_bytes = self.datagram_bytes - self.acks.overhead_bytes if sequence in path.full_probes else 0
        if self.trace is not None:
            self.trace.probe_sent(path.index, path_sequence=sequence, now=now)
        sent_us = int(now * 1e6) & 0xFFFFFFFF
        probe = Probe(self.remote_context, self.own_context, path.index, sequence, sent_us, *ack_path, size_bytes)
        return self._control_over(path.index, probe.encode(), now=now)
