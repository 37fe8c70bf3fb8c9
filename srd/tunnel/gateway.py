"""Moves packets between one TUN interface and the peers of an SRD endpoint.

A packet that the kernel routes to the interface goes to the peer that the routing names, and a packet from a peer goes
to the kernel if the routing does not refuse it (`routing`). The kernel forwards, answers with ICMP, and counts hops: to
it the interface is a link. Packets between two clients pass the listener's kernel, if that forwards.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, Protocol

from srd.errors import SrdError
from srd.peer import Peer
from srd.tunnel import vnet
from srd.tunnel.ack_filter import AckFilter
from srd.tunnel.config import TunnelConfig
from srd.tunnel.counters import Counters
from srd.tunnel.errors import InterfaceGoneError
from srd.tunnel.frames import CONTROL, FRAME_BYTES, ORDERED, VNET_AT
from srd.tunnel.member import Member, OutgoingPacket
from srd.tunnel.packets import InnerPacketError, parse_untrusted
from srd.tunnel.routing import Routing
from srd.tunnel.segments import segments
from srd.tunnel.send_memory import PacketMemory
from srd.tunnel.tun import MAX_READ_BYTES, Tun, WriteDrop

READ_BYTES: Final = VNET_AT + MAX_READ_BYTES
PACKETS_PER_TURN: Final = 16
"""Packets read from a queue of the interface before the event loop looks at the network again: 1 MiB at most, as much
as the driver of the sockets sends in a turn (srd.io.driver.TURN_BYTES)."""
SEED_BYTES: Final = 16
"""Of the hash of flows."""
PAUSE_S: Final = 0.001
"""Until memory is looked for again."""


class GatewayOwner(Protocol):
    """Who opens the peers: a `Listener` or a `Connector`."""

    async def run(self) -> None:
        """Open peers until cancelled. Raises SrdError when that cannot go on."""

    def on_control_untrusted(self, member: Member, message: bytes) -> None:
        """Take a control message. Raises PacketError."""

    def on_left(self, member: Member) -> None:
        """Take note of a member's end."""


class Gateway:
    """An interface and the peers behind it."""

    def __init__(
        self,
        tun: Tun,
        *,
        config: TunnelConfig,
        routing: Routing,
        on_failure: Callable[[Exception], None],
    ) -> None:
        """Begin to read. `on_failure` is told that the interface is gone, and nothing is read any more."""
        self.owner: GatewayOwner | None = None
        """Who takes control messages, and is told of members that leave."""
        self.counters = Counters()
        """Of members that have left, and of packets that were dropped before they had a member."""
        self.members: list[Member] = []
        self._routing = routing
        self._tun = tun
        self._config = config
        self._on_failure = on_failure
        self.memory = PacketMemory()
        self._loop = asyncio.get_running_loop()
        self._seed = os.urandom(SEED_BYTES)
        self._reads = False
        self._paused: asyncio.TimerHandle | None = None
        self.read_from(tun)

    # -- from the interface -------------------------------------------------------------------------------------------

    def _on_readable(self, queue: int) -> None:
        """Read a queue, and send at once."""
        if members := self._read(queue):
            members[0].peer.send_now()  # all have the same endpoint

    def read_replies(self) -> bool:
        """Read what the kernel has replied to the packets just written; return whether anything was posted.

        A kernel replies to a ping, and acknowledges what TCP sends, within the write. All are written to the first
        queue, and the kernel replies on the queue that a flow's packets came from.
        """
        return self._reads and bool(self._read(0))

    def _read(self, queue: int) -> list[Member]:
        """Read packets from a queue of the interface, and post them; return whose they are."""
        now = self._loop.time()
        touched: dict[Member, None] = {}
        acks = AckFilter()
        try:
            for _ in range(PACKETS_PER_TURN):
                room = self.memory.room(READ_BYTES)
                if room is None:
                    self._pause()
                    break
                length = self._tun.read_into(room[VNET_AT:], queue=queue)
                if length is None:
                    break
                member = self._take(room[: VNET_AT + length], acks=acks, now=now)
                if member is not None:
                    touched[member] = None
            for member in touched:
                member.pump(now=now)
        except Exception as error:  # noqa: BLE001 - whoever owns the gateway ends it, or opens another interface
            self._fail(error)
        return list(touched)

    def _take(self, frame: memoryview, *, acks: AckFilter, now: float) -> Member | None:
        """Queue a packet that was read to the free part of the memory; return for whom.

        `acks`: those that were read in the same turn, and are queued still.
        """
        try:
            inner = parse_untrusted(frame[FRAME_BYTES:], seed=self._seed)
        except InnerPacketError as error:
            self.counters.dropped[error.reason] += 1
            return None
        member = self._routing.member_for(inner, frame, now=now)
        if member is None:
            return None
        if isinstance(member, str):
            self.counters.dropped[member] += 1
            return None
        packets = vnet.segment_count(vnet.parse(frame[VNET_AT:]), packet=inner)
        flags = ORDERED if inner.is_ordered else 0
        if inner.length <= member.small_bytes:
            frame = memoryview(bytearray(frame))
            if acks.merge(frame, inner):
                self.counters.acks_merged += 1
                return member
            packet = OutgoingPacket(frame, place=None, flow=inner.flow, flags=flags, packets=packets)
        else:
            place = self.memory.take(len(frame))
            packet = OutgoingPacket(place.view, place=place, flow=inner.flow, flags=flags, packets=packets)
        member.send(packet, now=now)
        return member

    def send_again(self, frames: Iterable[bytes]) -> None:
        """Send packets that the routing has kept."""
        now = self._loop.time()
        for frame in frames:
            room = self.memory.room(len(frame))
            if room is None:
                self.counters.dropped["memory"] += 1
                continue
            room[:] = frame
            member = self._take(room, acks=AckFilter(), now=now)
            if member is not None:
                member.pump(now=now)

    def read_from(self, tun: Tun) -> None:
        """Read packets from this interface, and write to it."""
        self._tun, self._reads = tun, True
        for queue, fd in enumerate(tun.fds):
            self._loop.add_reader(fd, self._on_readable, queue)

    def _stop_reading(self) -> None:
        if self._reads:
            self._reads = False
            for fd in self._tun.fds:
                self._loop.remove_reader(fd)

    def _pause(self) -> None:
        """Leave packets to the interface's own queue for a while, as all memory is in use."""
        self._stop_reading()
        self._paused = self._loop.call_later(PAUSE_S, self.read_from, self._tun)

    def _fail(self, error: Exception) -> None:
        self.close()
        self._on_failure(error)

    # -- from the peers (`member.MemberOwner`) ------------------------------------------------------------------------

    def write(self, parts: Sequence[memoryview | bytes]) -> str | None:
        """Give a packet to the kernel; return why it refuses, None: it has taken it."""
        tun = self._tun
        try:
            reason = tun.write(parts)
        except InterfaceGoneError:  # the reader is told, too, and makes another
            return WriteDrop.DOWN
        if reason is WriteDrop.REFUSED and vnet.parse(parts[0]) != vnet.NONE:
            whole = memoryview(b"".join(parts))
            pieces = segments(vnet.parse(whole), whole[vnet.HEADER_BYTES :])
            reason = next(filter(None, [tun.write((vnet.NOTHING_LEFT, piece)) for piece in pieces]), None)
        return reason

    def on_control_untrusted(self, member: Member, message: bytes) -> None:
        """Take a control message. Raises PacketError."""
        if self.owner is not None:
            self.owner.on_control_untrusted(member, message)

    def on_left(self, member: Member) -> None:
        """Forget a member."""
        self.members.remove(member)
        self._routing.remove(member)
        self.counters.add(member.counters)
        if self.owner is not None:
            self.owner.on_left(member)

    # -- members ------------------------------------------------------------------------------------------------------

    def add(self, peer: Peer) -> Member:
        """Make a peer a member, to be attached; packets pass once it has joined."""
        member = Member(
            peer, config=self._config, memory=self.memory, interface=self, refusal=self._routing.refusal_untrusted
        )
        self.members.append(member)
        return member

    def totals(self) -> Counters:
        """Return the counters of all, those that have left included."""
        totals = Counters()
        for each in (self.counters, *(member.counters for member in self.members)):
            totals.add(each)
        return totals

    @property
    def now(self) -> float:
        """The event loop's time."""
        return self._loop.time()

    def close(self) -> None:
        """Read nothing more. Members end with their peers."""
        self._stop_reading()
        if self._paused is not None:
            self._paused.cancel()


async def send_control(peer: Peer, message: bytes) -> None:
    """Send a control message, unless the peer has ended: whoever waits for an answer is told of that anyway."""
    with suppress(SrdError):
        await peer.send(message, immediate=CONTROL)
