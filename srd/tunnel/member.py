"""One peer of a tunnel: what is sent to it, and what comes from it.

Sending. Packets wait in a fair queue, and leave it when SRD has little beyond its congestion window. So it always has
something to send, its window is what limits it, and the queue that bulk flows make is here, where flows take turns
and CoDel sees it. A packet gets its place in its flow when it leaves the queue, as one that is dropped there must not
be waited for. Large packets are sent from the memory that they were read to; those of one flow that lie one behind
another are one message. Small ones are copied into a message that one SRD packet carries.

A message that was not acknowledged for `max_age_s` is cancelled; a peer that acknowledges none at all is ended.

Receiving. A message is written to the interface from the memory where it landed, unless it has to wait for others of
its flow. A message of one SRD packet is copied first: that costs less than to hold its memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from srd.batch import MessageBatch
from srd.errors import PacketError, PeerError
from srd.message import Message
from srd.peer import Peer
from srd.proto.wire.status import Status
from srd.tunnel import frames, vnet
from srd.tunnel.config import TunnelConfig
from srd.tunnel.counters import Counters
from srd.tunnel.fair_queue import FairQueue
from srd.tunnel.frames import FRAME_BYTES, ORDERED
from srd.tunnel.order import FlowOrder
from srd.tunnel.packets import DropReason, InnerPacket, InnerPacketError, parse_untrusted
from srd.tunnel.rewrite import mark_ce
from srd.tunnel.send_memory import MemoryPiece, PacketMemory

MERGED_BYTES: Final = 512 << 10
"""Most bytes of one flow in one message: a message costs the interpreter as much as some 20 KiB do. No end takes longer
ones: all packets of a message are looked at in one go, and of 16 MiB they could hold up the other members for seconds.
"""
AHEAD_S: Final = 0.001
"""What SRD has beyond its congestion window takes the network so long, as with Linux' TCP (tcp_small_queue_check)."""
LEAST_AHEAD_BYTES: Final = 64 << 10
"""And it is at least a super-packet, or the window would wait for packets."""
MOST_AHEAD_BYTES: Final = 1 << 20
"""And at most what SRD's driver sends in a turn."""
AHEAD_PARTS: Final = 2
"""Several packets in one message are at most this part of it: with the end of one the next is posted."""
MOST_WINDOWS: Final = 2
"""Most that SRD has, in windows, and MOST_AHEAD_BYTES: a message of which a part is acknowledged counts whole."""
AGE_CHECK_S: Final = 0.1


class OutgoingPacket:
    """A packet on its way to a peer."""

    __slots__ = ("flags", "flow", "frame", "packets", "place")

    def __init__(self, frame: memoryview, *, place: MemoryPiece | None, flow: int, flags: int, packets: int) -> None:
        self.frame = frame
        """Frame header, virtio's header, packet."""
        self.place = place
        """Where it lies in the send memory; None: it is small, and lies elsewhere."""
        self.flow = flow
        self.flags = flags
        self.packets = packets
        """On a wire: a super-packet's segments."""


class Posted:
    """A message that SRD has."""

    __slots__ = ("length", "packets", "places")

    def __init__(self, places: list[MemoryPiece], *, length: int, packets: int) -> None:
        self.places = places
        """Where it lies: one behind another."""
        self.length = length
        self.packets = packets


class LandedMessage:
    """A message whose packets are written one by one; it is released with the last, and kept whole until then."""

    __slots__ = ("_held", "_left", "_length", "_message")

    def __init__(self, message: Message | None, *, length: int, packets: int) -> None:
        """`message`: None if it was copied, and has been released."""
        self._message = message
        self._length = length
        self._left = packets
        self._held = 0  # packets that wait for others

    def release(self) -> None:
        """Count a packet that needs it no more."""
        self._left -= 1
        if self._left == 0 and self._message is not None:
            self._message.release()

    def hold(self) -> int:
        """Count a packet that waits; return the bytes that are kept for that: with the first one, all."""
        self._held += 1
        return self._length if self._held == 1 else 0

    def let_go(self) -> int:
        """Count a packet that waits no more; return the bytes that are kept no longer."""
        self._held -= 1
        return 0 if self._held else self._length


class Landed:
    """A packet that has arrived."""

    __slots__ = ("message", "parts")

    def __init__(self, parts: Sequence[memoryview | bytes], *, message: LandedMessage) -> None:
        self.parts = parts
        """virtio's header and the packet."""
        self.message = message
        """To be released when it was written."""

    def hold(self) -> int:
        """See `srd.tunnel.order.Holdable`."""
        return self.message.hold()

    def let_go(self) -> int:
        """See `srd.tunnel.order.Holdable`."""
        return self.message.let_go()


class MemberOwner(Protocol):
    """What a member needs of the gateway."""

    def write(self, parts: Sequence[memoryview | bytes]) -> str | None:
        """Give a packet to the kernel; return why it refuses, None: it has taken it."""

    def on_control_untrusted(self, member: Member, message: bytes) -> None:
        """Take a control message. Raises PacketError."""

    def read_replies(self) -> bool:
        """Read what the kernel has replied to the packets just written; return whether anything was posted."""

    def on_left(self, member: Member) -> None:
        """Take note that a member's peer has ended."""


class Member:
    """A peer of the tunnel; a `PeerHandler`, which is to be attached."""

    def __init__(
        self,
        peer: Peer,
        *,
        config: TunnelConfig,
        memory: PacketMemory,
        interface: MemberOwner,
        refusal: Callable[[Member, InnerPacket, memoryview | bytes], str | None],
    ) -> None:
        """`refusal`: see `srd.tunnel.routing.Routing.refusal_untrusted`."""
        self.peer = peer
        self._counters = Counters()
        self.has_joined = False
        """Whether its packets are taken; True from then on, after its end, too."""
        self._is_ready = False  # whether the greeting is over at both ends: packets are sent to it
        self.small_bytes = 0
        """Packets up to this length are copied to share an SRD packet: two fit at least, and many ACKs. Known once the
        peer is open."""
        self._config = config
        self._memory = memory
        self._interface = interface
        self._refusal_untrusted = refusal
        self._loop = asyncio.get_running_loop()
        self._queue = FairQueue[OutgoingPacket](
            limit_bytes=config.queue_bytes,
            limit_packets=config.queue_packets,
            target_s=config.target_s,
            interval_s=config.interval_s,
            quantum_bytes=config.quantum_bytes,
            buckets=config.buckets,
            mark=self._mark,
            drop=self._drop,
        )
        self._next: OutgoingPacket | None = None  # left the queue, and had no room in the message before it
        self._sequences: dict[int, int] = {}  # of each flow: of the next packet
        self._posted: dict[int, Posted] = {}  # by request
        self._posted_bytes = 0
        self._ages: deque[tuple[float, int]] = deque()  # requests in the order of posting
        self._age_check: asyncio.TimerHandle | None = None
        self._unanswered_since: float | None = None  # since then messages were given up, and none was acknowledged
        self._order = FlowOrder[Landed](limit_bytes=config.reorder_bytes)
        self._order_timer: asyncio.TimerHandle | None = None
        self._order_timer_at = 0.0
        """Noted, as uvloop's handle of a time that has passed does not say it."""

    @property
    def counters(self) -> Counters:
        """What it has counted until now."""
        counters, order = self._counters, self._order
        counters.reordered, counters.gaps_given_up, counters.late = order.reordered, order.given_up, order.late
        return counters

    @property
    def queued_packets(self) -> int:
        """Packets that wait for the network."""
        return len(self._queue) + (self._next is not None)

    def admit(self) -> None:
        """Take its packets; those for it wait until it knows that, and `join` is called."""
        self.has_joined = True
        self.small_bytes = self.peer.batch_bytes // 2 - FRAME_BYTES

    def join(self) -> None:
        """Let packets pass both ways."""
        self.admit()
        self._is_ready = True
        self.pump(now=self._loop.time())

    # -- sending ------------------------------------------------------------------------------------------------------

    def send(self, packet: OutgoingPacket, *, now: float) -> None:
        """Queue a packet; `pump` sends it."""
        self._queue.push(packet, flow=packet.flow, size_bytes=len(packet.frame), now=now)

    def pump(self, *, now: float) -> None:
        """Post what the network has room for."""
        if not self._is_ready:
            return
        peer = self.peer
        window_bytes = peer.window_bytes
        ahead_bytes = self._ahead_bytes(window_bytes)
        most_bytes = window_bytes + ahead_bytes
        most_posted_bytes = MOST_WINDOWS * window_bytes + MOST_AHEAD_BYTES
        while peer.inflight_bytes + peer.unsent_bytes <= most_bytes and self._posted_bytes < most_posted_bytes:
            packet, self._next = self._next, None
            if packet is None and (packet := self._queue.pop(now=now)) is None:
                return
            if packet.place is None:
                self._post_small(packet, now=now)
            else:
                self._post_large(packet, most_bytes=ahead_bytes / AHEAD_PARTS, now=now)

    def _ahead_bytes(self, window_bytes: float) -> float:
        """Return how much SRD may have beyond its congestion window."""
        rtt_s = self.peer.smoothed_rtt_s
        if not rtt_s:
            return LEAST_AHEAD_BYTES
        return min(max(window_bytes / rtt_s * AHEAD_S, LEAST_AHEAD_BYTES), MOST_AHEAD_BYTES)

    def _number(self, packet: OutgoingPacket) -> None:
        """Write the frame's header, with the packet's place in its flow if it has an order."""
        flow, sequence = packet.flow, 0
        if packet.flags & ORDERED:
            sequence = self._sequences.get(flow, 0)
            self._sequences[flow] = (sequence + 1) & 0xFFFFFFFF
        frames.HEADER.pack_into(packet.frame, 0, len(packet.frame) - FRAME_BYTES, flow, sequence, packet.flags)

    def _post_small(self, packet: OutgoingPacket | None, *, now: float) -> None:
        """Post one message with this packet and the small ones behind it, as one SRD packet."""
        most_bytes = self.peer.batch_bytes
        room = self._memory.room(most_bytes)
        if room is None:
            assert packet is not None  # noqa: S101 - given
            self._drop(packet, "memory")
            return
        at = packets = 0
        while packet is not None:
            if packet.place is not None or at + len(packet.frame) > most_bytes:
                self._next = packet
                break
            self._number(packet)
            end = at + len(packet.frame)
            room[at:end] = packet.frame
            at = end
            packets += packet.packets
            packet = self._queue.pop(now=now)
        self._post(Posted([self._memory.take(at)], length=at, packets=packets), now=now)

    def _post_large(self, first: OutgoingPacket, *, most_bytes: float, now: float) -> None:
        """Post one message with this packet and those of its flow that are behind it, in the queue and in memory."""
        most_bytes = min(most_bytes, MERGED_BYTES)
        places: list[MemoryPiece] = []
        length = packets = 0
        packet: OutgoingPacket | None = first
        while packet is not None:
            place, end = packet.place, length + len(packet.frame)
            is_next = place is not None and (not places or place.address == places[0].address + length)
            has_room = not places or end <= most_bytes
            if place is None or not is_next or not has_room or packet.flow != first.flow:
                self._next = packet
                break
            self._number(packet)
            places.append(place)
            length = end
            packets += packet.packets
            may_grow = first.flags & ORDERED and length + len(packet.frame) <= most_bytes
            packet = self._queue.pop(now=now) if may_grow else None
        self._post(Posted(places, length=length, packets=packets), now=now)

    def _post(self, message: Posted, *, now: float) -> None:
        length = message.length
        try:
            request = self.peer.post(message.places[0].address, length=length)
        except PeerError:  # it is being closed
            self._give_back(message)
            self._counters.dropped["peer_closed"] += message.packets
            return
        self._posted[request] = message
        self._posted_bytes += length
        self._ages.append((now, request))
        if self._age_check is None:
            self._age_check = self._loop.call_later(AGE_CHECK_S, self._check_ages)

    def on_completion(self, request: int, *, status: Status) -> None:
        """Free a message's memory, and post what has room now."""
        posted = self._posted.pop(request, None)
        if posted is None:  # a control message's
            return
        counters = self._counters
        self._give_back(posted)
        self._posted_bytes -= posted.length
        if status is Status.OK:
            self._unanswered_since = None
            counters.ena_srd_tx_pkts += posted.packets
            counters.ena_srd_eligible_tx_pkts += posted.packets
            counters.tx_messages += 1
            counters.tx_bytes += posted.length
        elif status is Status.FLUSHED:
            counters.expired += 1
            counters.dropped["expired"] += posted.packets
        else:
            counters.dropped[status.name.lower()] += posted.packets
        if self._next is not None or len(self._queue):
            self.pump(now=self._loop.time())

    def _give_back(self, message: Posted) -> None:
        for place in message.places:
            self._memory.give_back(place)

    def _check_ages(self) -> None:
        """Cancel what is older than it may be; end a peer that acknowledges nothing."""
        self._age_check = None
        now = self._loop.time()
        ages, oldest_at = self._ages, now - self._config.max_age_s
        while ages and (ages[0][1] not in self._posted or ages[0][0] < oldest_at):
            posted_at, request = ages.popleft()
            if request in self._posted:
                self.peer.cancel(request)
                if self._unanswered_since is None:
                    self._unanswered_since = posted_at
                elif now - self._unanswered_since >= self._config.unanswered_s:
                    self.peer.fail(f"nothing acknowledged for {now - self._unanswered_since:.1f} s")
                    return
        if ages:
            self._age_check = self._loop.call_later(AGE_CHECK_S, self._check_ages)

    def _mark(self, packet: OutgoingPacket) -> bool:
        if not mark_ce(packet.frame[FRAME_BYTES:]):
            return False
        self._counters.ce_marked += packet.packets
        return True

    def _drop(self, packet: OutgoingPacket, reason: str = "queue") -> None:
        self._counters.dropped[reason] += packet.packets
        if packet.place is not None:
            self._memory.give_back(packet.place)

    # -- receiving ----------------------------------------------------------------------------------------------------

    def on_message(self, message: Message | MessageBatch) -> None:
        """Take a message of the peer. One that no tunnel sends ends the peer."""
        try:
            if isinstance(message, MessageBatch):
                rows = [bytes(row) for row in message.rows()]
                message.release()
                for row in rows:
                    self._take_copied_untrusted(row, immediate=message.immediate)
            elif message.immediate is not None:
                self._take_copied_untrusted(message.data(), immediate=message.immediate)
            else:
                self._take_untrusted(message)
        except PacketError as error:
            self._counters.dropped["malformed"] += 1
            self.peer.fail(str(error))
        self.peer.after_delivery(self._interface.read_replies)

    def _take_copied_untrusted(self, message: bytes, *, immediate: int | None) -> None:
        if immediate is not None:
            self._interface.on_control_untrusted(self, message)
            return
        self._arrived_all_untrusted(list(frames.frames_untrusted([memoryview(message)])), None, length=len(message))

    def _take_untrusted(self, message: Message) -> None:
        """Take a message of packets. They are written from where they landed, unless they are small."""
        if message.length <= self.peer.batch_bytes:
            self._take_copied_untrusted(message.data(), immediate=None)
            return
        try:
            found = list(frames.frames_untrusted(list(message.views())))
        except PacketError:
            message.release()
            raise
        self._arrived_all_untrusted(found, message, length=message.length)

    def _arrived_all_untrusted(
        self, found: list[tuple[frames.FrameHeader, list[memoryview | bytes]]], message: Message | None, *, length: int
    ) -> None:
        self._counters.rx_messages += 1
        received = LandedMessage(message, length=length, packets=len(found))
        for header, packet in found:
            self._arrived_untrusted(header, packet, message=received)

    def _arrived_untrusted(
        self, header: frames.FrameHeader, parts: list[memoryview | bytes], *, message: LandedMessage
    ) -> None:
        """Hand a packet to the kernel, or let it wait."""
        try:
            inner, packet = self._parse_untrusted(parts, length=header.length)
            packets = vnet.segment_count(vnet.parse_untrusted(parts[0], packet=inner), packet=inner)
        except InnerPacketError as error:
            self._refuse(message, error.reason)
            return
        if not self.has_joined:
            self._refuse(message, "not_joined")
            return
        refusal = self._refusal_untrusted(self, inner, packet)
        if refusal is not None:
            self._refuse(message, refusal)
            return
        self._counters.ena_srd_rx_pkts += packets
        self._counters.rx_bytes += header.length
        landed = Landed(parts, message=message)
        if header.flags & ORDERED:
            self._write_in_order(landed, header)
        else:
            self._write(landed)

    def _parse_untrusted(
        self, parts: list[memoryview | bytes], *, length: int
    ) -> tuple[InnerPacket, memoryview | bytes]:
        """Return what a packet is, and its bytes: all of them, or the first ones with all headers.

        Raises InnerPacketError.
        """
        packet = parts[0][vnet.HEADER_BYTES :]
        try:
            inner = parse_untrusted(packet, size_bytes=length)
        except InnerPacketError as error:
            if error.reason is not DropReason.TRUNCATED or len(parts) == 1:
                raise
            packet = b"".join(parts)[vnet.HEADER_BYTES :]
            inner = parse_untrusted(packet)
        return inner, packet

    def _write_in_order(self, landed: Landed, header: frames.FrameHeader) -> None:
        config, now = self._config, self._loop.time()
        hold_s = min(
            max(config.reorder_round_trips * self.peer.smoothed_rtt_s, config.reorder_least_s), config.reorder_most_s
        )
        order = self._order
        for ready in order.take(landed, flow=header.flow, sequence=header.sequence, now=now, hold_s=hold_s):
            self._write(ready)
        if order.held_bytes:
            self._set_order_timer()

    def _set_order_timer(self) -> None:
        """Have `_expire` called in time; a call that comes too early does no harm."""
        next_at = self._order.next_at
        if next_at is None or (self._order_timer is not None and self._order_timer_at <= next_at):
            return
        if self._order_timer is not None:
            self._order_timer.cancel()
        self._order_timer, self._order_timer_at = self._loop.call_at(next_at, self._expire), next_at

    def _expire(self) -> None:
        """Hand over what has waited for too long."""
        self._order_timer = None
        for landed in self._order.expire(now=self._loop.time()):
            self._write(landed)
        self._set_order_timer()

    def _write(self, landed: Landed) -> None:
        refusal = self._interface.write(landed.parts)
        if refusal is not None:
            self._counters.dropped[refusal] += 1
        landed.message.release()

    def _refuse(self, message: LandedMessage, reason: str) -> None:
        self._counters.dropped[reason] += 1
        message.release()

    # -- the end ------------------------------------------------------------------------------------------------------

    def on_ended(self) -> None:
        """Give everything back: what waits to be sent, and what waits to be handed over, which is handed over."""
        self._is_ready = False
        for timer in (self._age_check, self._order_timer):
            if timer is not None:
                timer.cancel()
        for landed in self._order.flush():
            self._write(landed)
        self._queue.flush()
        if self._next is not None:
            self._drop(self._next, "peer_ended")
            self._next = None
        self._interface.on_left(self)
