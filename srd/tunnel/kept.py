"""What inner TCP connections sent last while there was no peer to send it to.

A TCP whose packets are lost sends one again after its timeout, and doubles that each time (RFC 6298, section 5.5): in
an outage of 5 s the last one is sent after 3 s, and the next would be after 6 s. So the newest packet of each flow is
kept, and sent when there is a peer again: its acknowledgement lets the connection go on at once, instead of after up to
as long again as the outage was. Of other protocols nothing is kept: a late datagram is of no use.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from srd.tunnel.packets import InnerPacket

MAX_FLOWS: Final = 256
MAX_BYTES: Final = 1 << 20
MAX_AGE_S: Final = 10.0
"""Longer than the pause between two tries in an outage of 10 s. What is older would only be a surprise."""


class KeptPacket(NamedTuple):
    """One that is kept."""

    frame: bytes
    destination: bytes
    at: float


class KeptPackets:
    """The newest TCP packet of each flow."""

    def __init__(self) -> None:
        self._packets: dict[int, KeptPacket] = {}  # by flow, the oldest first
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._packets)

    def keep(self, frame: memoryview, inner: InnerPacket, *, now: float) -> int:
        """Keep a copy of a packet; return how many packets are dropped, which may be this one."""
        if not inner.is_ordered:
            return 1
        dropped = int(self._forget(inner.flow))
        self._packets[inner.flow] = KeptPacket(bytes(frame), inner.destination, now)
        self._bytes += len(frame)
        while len(self._packets) > MAX_FLOWS or self._bytes > MAX_BYTES:
            dropped += self._forget(next(iter(self._packets)))
        return dropped

    def destinations(self) -> set[bytes]:
        """Return where packets are to go."""
        return {packet.destination for packet in self._packets.values()}

    def take(self, destinations: set[bytes], *, now: float) -> tuple[list[bytes], int]:
        """Keep the packets to these destinations no more; return them, and how many are dropped as too old."""
        taken = [flow for flow, packet in self._packets.items() if packet.destination in destinations]
        packets = [self._packets[flow] for flow in taken]
        for flow in taken:
            self._forget(flow)
        frames = [packet.frame for packet in packets if packet.at >= now - MAX_AGE_S]
        return frames, len(packets) - len(frames)

    def _forget(self, flow: int) -> bool:
        packet = self._packets.pop(flow, None)
        if packet is None:
            return False
        self._bytes -= len(packet.frame)
        return True
