"""Leaves out acknowledgements that a later one replaces.

cake's ACK filter has such rules (Høiland-Jørgensen et al., "Piece of CAKE", 2018).

The kernel acknowledges each super-packet that is written to an interface, so a bulk flow has as many ACKs on its way
back as super-packets on its way there, and several of them wait whenever the interface is read. The last one says all
that the others say, and each costs both ends as much as a packet of data. Linux counts the bytes that an ACK covers,
not the ACKs (RFC 3465).

A TCP packet is left out if all of this holds; the one before takes its content, and so keeps its place:

1. It and the one before of its connection were read in the same turn, with nothing sent in between.
2. Both are pure: no data, no flag but ACK, no option but timestamps. ECN's echo, SACK, and a FIN are never lost.
3. It acknowledges more than the one before. Duplicate ACKs and window updates are kept: TCP counts and needs them.
"""

from __future__ import annotations

from typing import Final

from srd.tunnel.frames import FRAME_BYTES
from srd.tunnel.packets import TCP, TCP_BYTES, InnerPacket

_FLAGS_AT: Final = 13
_ACK: Final = 0x10
_SEQUENCE_AT, _ACKNOWLEDGED_AT, _ACKNOWLEDGED_END = 4, 8, 12
_OPTIONS_AT: Final = TCP_BYTES
_TIMESTAMPS: Final = b"\x01\x01\x08\x0a"
"""Two no-operations before the option, as all systems lay it out (RFC 7323, appendix A)."""
_TIMESTAMPS_BYTES: Final = 12
_ADDRESSES_AT: Final = {4: 12, 6: 8}
_SERIAL_MASK: Final = (1 << 32) - 1
_SERIAL_HALF: Final = 1 << 31


class AckFilter:
    """The ACKs that were read in one turn."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[int, memoryview] = {}  # by flow: the ACK that was read last

    def merge(self, frame: memoryview, inner: InnerPacket) -> bool:
        """Let a frame take the place of the one before of its connection, if that may be; return whether it has.

        If not, the next one may take the place of this one, which is to stay where it is until the turn ends.
        """
        before = self._last.pop(inner.flow, None) if self._last else None
        packet = frame[FRAME_BYTES:]
        if inner.payload_at != inner.length or not _is_pure(packet, inner):
            return False
        if before is None or not _is_newer(packet, before[FRAME_BYTES:], inner):
            self._last[inner.flow] = frame
            return False
        self._last[inner.flow] = before
        before[:] = frame
        return True


def _is_pure(packet: memoryview, inner: InnerPacket) -> bool:
    """Whether a packet without data says nothing but how much has arrived."""
    if inner.protocol != TCP or inner.is_fragment or packet[inner.header_bytes + _FLAGS_AT] != _ACK:
        return False
    options_at = inner.header_bytes + _OPTIONS_AT
    options_bytes = inner.length - options_at
    return options_bytes == 0 or (
        options_bytes == _TIMESTAMPS_BYTES and bytes(packet[options_at : options_at + 4]) == _TIMESTAMPS
    )


def _is_newer(packet: memoryview, before: memoryview, inner: InnerPacket) -> bool:
    """Whether a pure ACK acknowledges more than another of the same connection. Flows are hashes: that is checked."""
    tcp_at, addresses_at = inner.header_bytes, _ADDRESSES_AT[inner.version]
    acknowledged_at = tcp_at + _ACKNOWLEDGED_AT
    if len(packet) != len(before) or packet[:2] != before[:2]:  # IP version, header length, traffic class
        return False
    if packet[addresses_at:acknowledged_at] != before[addresses_at:acknowledged_at]:  # and ports, sequence number
        return False
    acknowledged_end = tcp_at + _ACKNOWLEDGED_END
    newer = int.from_bytes(packet[acknowledged_at:acknowledged_end], "big")
    older = int.from_bytes(before[acknowledged_at:acknowledged_end], "big")
    return 0 < (newer - older) & _SERIAL_MASK < _SERIAL_HALF
