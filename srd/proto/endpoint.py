"""The protocol core of one endpoint: all its peers, found by context id, and the handshake before them.

Call order. The owner of the core, after anything happened:

    handle_packets(...)      what arrived, as one batch       -> the pieces of memory that must be kept
    handle_timeout(now)      when `poll_timeout` has passed; after the packets: hear before you judge
    poll_event()             until None: deliver
    poll_transmit(now)       until None, or until the sockets are full: send
    poll_timeout(now)        when to come back, if nothing arrives

Commands (`connect`, `post`, `release`, `close`) may come at any time and are followed by the last two.

Peers take turns: `poll_transmit` gives one packet or burst of the peer whose turn it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from random import Random

from srd.proto.config import ProtocolConfig
from srd.proto.congestion import CONTROLLERS
from srd.proto.control import (
    Accept,
    Ack,
    Close,
    Closed,
    Control,
    Datagram,
    Hello,
    Probe,
    Refuse,
    Reset,
    Retry,
    decode_untrusted,
)
from srd.proto.errors import PacketError, UsageError
from srd.proto.events import Completion, Event, Frag
from srd.proto.handshake import CookieJar, Initiator
from srd.proto.peer import PeerCore, PeerState
from srd.proto.status import Status
from srd.proto.timers import Timers
from srd.proto.wire import MIN_DATAGRAM_BYTES, Address, Arrival, Burst, runs_untrusted

MAX_REPLIES = 64
"""Stateless answers (cookies, resets) waiting to be sent; more are dropped, as their askers will ask again."""


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
    ) -> None:
        """Take what the core cannot make itself.

        `datagram_bytes`: the largest datagram that this end receives; `secret`: the cookies' key; `new_context`: a
        source of unguessable 64-bit ids; `rng`: dice for choosing paths; `accepting`: whether others may open peers.
        """
        if config.controller not in CONTROLLERS:
            raise UsageError(f"controller: {config.controller!r} is not one of {', '.join(CONTROLLERS)}")
        self.malformed = 0
        self._config = config
        self._datagram_bytes = datagram_bytes
        self._cookies = CookieJar(secret=secret)
        self._new_context = new_context
        self._rng = rng
        self._accepting = accepting
        self._peers: dict[int, PeerCore] = {}  # by number
        self._by_context: dict[int, PeerCore] = {}  # by the context id that we chose
        self._by_remote: dict[int, PeerCore] = {}  # by the context id that the other end chose
        self._by_hello: dict[tuple[Address, int], PeerCore] = {}  # incoming: by address and the other end's context
        self._ready: dict[int, None] = {}  # numbers of the peers that may have something to send, in turn
        self._replies: deque[Datagram] = deque()
        self._events: deque[Event] = deque()
        self._timers = Timers()
        self._next_number = 0

    # -- commands -----------------------------------------------------------------------------------------------

    def connect(self, address: Address, *, sizes: tuple[int, ...], now: float) -> int:
        """Open a peer; return its number. `sizes`: datagram sizes to try, in bytes, largest first."""
        if not sizes or min(sizes) < MIN_DATAGRAM_BYTES:
            raise UsageError(f"sizes: {sizes} needs sizes of at least {MIN_DATAGRAM_BYTES} bytes")
        peer = self._add(address, now=now)
        peer.initiator = Initiator(
            own_context=peer.own_context,
            credit_bytes=peer.receiver.credit_bytes,
            max_message_bytes=self._config.max_message_bytes,
            sizes=sizes,
            now=now,
            interval_s=self._config.initial_rtt_s,
            timeout_s=self._config.handshake_timeout_s,
        )
        return peer.number

    def post(self, peer: int, *, request: int, payload_offset: int, length: int, immediate: int = 0) -> None:
        """Send a message of `length` bytes that start at `payload_offset` of the region.

        Ends with a Completion for `request`, whatever happens; with LOCAL_ERROR_BAD_LENGTH at once when the responder
        does not take messages that long. Raises UsageError for a peer that is gone.
        """
        core = self._peer(peer)
        if core.sender is None or core.state is not PeerState.OPEN:
            raise UsageError(f"peer {peer} is not open for sending")
        if not 0 <= immediate < 1 << 32:
            raise UsageError(f"immediate: {immediate} does not fit into 32 bits")
        if length > core.sender.max_message_bytes:
            core.events.append(Completion(peer, request, Status.LOCAL_ERROR_BAD_LENGTH))
            self._after(core)
            return
        core.sender.post(request, payload_offset=payload_offset, length=length, immediate=immediate)
        self._ready[peer] = None

    def release(self, peer: int, *, size_bytes: int, now: float) -> None:
        """Give back the credit of a delivered message; a peer that is gone needs none."""
        if core := self._peers.get(peer):
            core.receiver.release(size_bytes, now=now)
            self._ready[peer] = None

    def close(self, peer: int, *, now: float) -> None:
        """Close a peer in an orderly way, after what was posted; ends with PeerEnded."""
        core = self._peer(peer)
        core.close(now=now)
        self._after(core)

    def peer(self, number: int) -> PeerCore:
        """Look at a peer. Raises UsageError if it is gone."""
        return self._peer(number)

    # -- input --------------------------------------------------------------------------------------------------

    def handle_packets(
        self, arrivals: Iterable[Arrival], *, controls: Iterable[tuple[bytes, Address, float]], now: float
    ) -> list[Frag]:
        """Take a batch: data packets, and control packets as (bytes, source address, time of receipt).

        Returns the pieces of memory that hold new data, to be kept until their message is released or orphaned.
        """
        kept: list[Frag] = []
        touched: dict[int, PeerCore] = {}
        for arrival in arrivals:
            for run in runs_untrusted(arrival):
                peer = self._by_context.get(run.context)
                if peer is None:
                    self._reply(run.address, Reset(run.context).encode())
                    continue
                if peer.sender is None or peer.state is PeerState.ENDED:
                    continue  # it overtook the responder's ACCEPT and will come again, or nobody waits for it any more
                kept += peer.handle_run(run, now=now)
                touched[peer.number] = peer
        for peer in touched.values():
            self._after(peer)
        for data, address, received_at in controls:
            try:
                self._handle_control_untrusted(decode_untrusted(data), address, now=now, received_at=received_at)
            except PacketError:
                self.malformed += 1
        return kept

    def _handle_control_untrusted(self, packet: Control, address: Address, *, now: float, received_at: float) -> None:
        if isinstance(packet, Hello):
            self._handle_hello(packet, address, now=now)
            return
        by = self._by_remote if isinstance(packet, Closed | Reset) else self._by_context
        peer = by.get(packet.context)
        if peer is None:
            self._handle_stray(packet, address)
            return
        match packet:
            case Ack():
                peer.handle_ack(packet, now=now, received_at=received_at)
            case Probe():
                peer.handle_probe(packet, address=address, now=now, received_at=received_at)
            case Retry() if peer.initiator is not None:
                peer.initiator.retry(packet.cookie, now=now)
            case Accept() if peer.initiator is not None:
                self._opened(
                    peer,
                    packet.own_context,
                    min(packet.datagram_bytes, self._datagram_bytes),
                    packet,
                    now=now,
                )
            case Refuse() if peer.initiator is not None:
                peer.end(Status.REMOTE_ERROR_ABORT, reason=f"refused (status {packet.status})")
            case Close():
                self._reply(address, Closed(packet.context).encode())
                peer.end(Status.OK, reason="closed by the other end")
            case Closed() if peer.state is PeerState.CLOSING:
                peer.end(Status.OK, reason="closed")
            case Reset() if peer.state is PeerState.CLOSING:
                peer.end(Status.OK, reason="closed")
            case Reset():
                peer.end(Status.LOCAL_ERROR_UNRESP_REMOTE, reason="the other end does not know us any more")
        self._after(peer)

    def _handle_stray(self, packet: Control, address: Address) -> None:
        """Answer a packet for a context that is not, or no longer, ours."""
        if isinstance(packet, Close):
            self._reply(address, Closed(packet.context).encode())
        elif isinstance(packet, Probe):
            self._reply(address, Reset(packet.context).encode())

    def _handle_hello(self, hello: Hello, address: Address, *, now: float) -> None:
        peer = self._by_hello.get((address, hello.own_context))
        if peer is None:
            if not self._accepting:
                self._reply(address, Refuse(hello.own_context, Status.LOCAL_ERROR_UNREACH_REMOTE).encode())
                return
            if not self._cookies.check(hello.cookie, address=address, context=hello.own_context, now=now):
                cookie = self._cookies.make(address=address, context=hello.own_context, now=now)
                self._reply(address, Retry(hello.own_context, cookie).encode())
                return
            peer = self._add(address, now=now)
            self._by_hello[address, hello.own_context] = peer
            self._opened(peer, hello.own_context, min(hello.datagram_bytes, self._datagram_bytes), hello, now=now)
            self._after(peer)
        credit_bytes = self._config.receive_window_bytes
        accept = Accept(
            hello.own_context, peer.own_context, credit_bytes, self._config.max_message_bytes, peer.datagram_bytes
        )
        self._reply(address, accept.encode())

    def _opened(self, peer: PeerCore, remote: int, datagram_bytes: int, packet: Hello | Accept, *, now: float) -> None:
        peer.opened(
            remote_context=remote,
            datagram_bytes=datagram_bytes,
            credit_bytes=packet.credit_bytes,
            max_message_bytes=packet.max_message_bytes,
            now=now,
        )
        self._by_remote[remote] = peer

    def handle_icmp_unreachable(self, address: Address) -> None:
        """The network says that nothing listens at `address`. Believed only while a peer is being opened."""
        for peer in list(self._peers.values()):
            if peer.initiator is not None and peer.address == address:
                peer.end(Status.LOCAL_ERROR_UNREACH_REMOTE, reason="nothing listens there (port unreachable)")
                self._after(peer)

    def handle_timeout(self, now: float) -> None:
        """Do what is due."""
        for number in self._timers.expired(now):
            if peer := self._peers.get(number):
                peer.handle_timeout(now=now)
                self._after(peer)

    # -- output -------------------------------------------------------------------------------------------------

    def poll_transmit(self, now: float) -> Burst | Datagram | None:
        """Return the next thing to send."""
        if self._replies:
            return self._replies.popleft()
        while self._ready:
            number = next(iter(self._ready))
            del self._ready[number]
            peer = self._peers.get(number)
            if peer is None:
                continue
            out = peer.poll_control(now=now) or peer.poll_burst(now=now)
            if out is not None:
                self._ready[number] = None  # to the end of the line
                return out
            self._timers.arm(number, at=peer.poll_timeout(now=now))
        return None

    def poll_timeout(self) -> float | None:
        """When `handle_timeout` wants to be called. Valid once `poll_transmit` has returned None."""
        return self._timers.next_at()

    def poll_event(self) -> Event | None:
        """Return the next event."""
        return self._events.popleft() if self._events else None

    # -- peers --------------------------------------------------------------------------------------------------

    def _add(self, address: Address, *, now: float) -> PeerCore:
        peer = PeerCore(
            self._next_number,
            config=self._config,
            address=address,
            own_context=self._new_context(),
            rng=self._rng,
            now=now,
        )
        self._next_number += 1
        self._peers[peer.number] = self._by_context[peer.own_context] = peer
        self._ready[peer.number] = None
        return peer

    def _peer(self, number: int) -> PeerCore:
        peer = self._peers.get(number)
        if peer is None:
            raise UsageError(f"peer {number} is gone")
        return peer

    def _after(self, peer: PeerCore) -> None:
        """Collect a peer's events, give it its turn, and forget it when it has ended."""
        self._events.extend(peer.events)
        peer.events.clear()
        if peer.state is not PeerState.ENDED:
            self._ready[peer.number] = None
        elif self._peers.pop(peer.number, None):
            del self._by_context[peer.own_context]
            self._by_remote.pop(peer.remote_context, None)
            self._by_hello.pop((peer.address, peer.remote_context), None)
            self._ready.pop(peer.number, None)
            self._timers.arm(peer.number, at=None)

    def _reply(self, address: Address, data: bytes) -> None:
        if len(self._replies) < MAX_REPLIES:
            self._replies.append(Datagram(address, 0, data))
