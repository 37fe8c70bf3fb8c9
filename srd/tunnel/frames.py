"""What the messages of a tunnel hold.

A message without an immediate holds frames, one behind another; a message with the immediate CONTROL holds the control
message of `greeting` (JSON). A frame is a packet behind this header, in network byte order:

    byte  size  field
    0     2     length of the packet
    2     2     flow: which packets keep their order among each other, as a hash of addresses, ports and protocol
    4     4     sequence: place in the flow, from 0 on in each session, modulo 2^32
    8     1     flags: ORDERED
    9     1     0
    10    10    virtio's network header of the packet, in little-endian byte order (`vnet`)
    20          the packet

Large packets share a message with others of their flow alone, so that what is delayed in the network delays no other
flow. Small ones share a message of one SRD packet, whatever their flows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from srd.errors import PacketError
from srd.tunnel import vnet

HEADER: Final = Struct("!HHIBx")
FRAME_BYTES: Final = HEADER.size + vnet.HEADER_BYTES
"""Of the header, with virtio's."""
VNET_AT: Final = HEADER.size
"""Where in a frame begins what is read from a TUN interface, and written to it."""
HEADERS_BYTES: Final = 256
"""What holds virtio's header and the packet's, but for long chains of IPv6 extension headers."""
ORDERED: Final = 1
"""Flag: the packet waits for those before it in its flow."""
CONTROL: Final = 1
"""Immediate of a control message."""


class FrameHeader(NamedTuple):
    """The header of a frame, without virtio's."""

    length: int
    flow: int
    sequence: int
    flags: int


class _Cursor:
    """Takes bytes from the pieces of a message, in order."""

    def __init__(self, pieces: Sequence[memoryview]) -> None:
        self._pieces = pieces
        self._index = self._at = 0
        self.left = sum(map(len, pieces))

    def take(self, size_bytes: int) -> list[memoryview]:
        """Return the next bytes, as they lie. Raises PacketError if there are less."""
        if size_bytes > self.left:
            raise PacketError(f"a frame needs {size_bytes} bytes more, and its message has {self.left}")
        self.left -= size_bytes
        taken: list[memoryview] = []
        while size_bytes:
            piece = self._pieces[self._index]
            part = piece[self._at : self._at + size_bytes]
            taken.append(part)
            size_bytes -= len(part)
            self._at += len(part)
            if self._at == len(piece):
                self._index, self._at = self._index + 1, 0
        return taken


def frames_untrusted(pieces: Sequence[memoryview]) -> Iterator[tuple[FrameHeader, list[memoryview | bytes]]]:
    """Yield each frame of a message: its header, and virtio's header with the packet. Raises PacketError.

    Nothing is copied, but for a beginning of a packet that lies in two pieces: the first piece that is returned has
    HEADERS_BYTES, or all.
    """
    cursor = _Cursor(pieces)
    while cursor.left:
        taken = cursor.take(HEADER.size)
        header = FrameHeader._make(HEADER.unpack(taken[0] if len(taken) == 1 else b"".join(taken)))
        packet: list[memoryview | bytes] = [*cursor.take(vnet.HEADER_BYTES + header.length)]
        while len(packet) > 1 and len(packet[0]) < HEADERS_BYTES:
            packet[:2] = [b"".join(packet[:2])]
        yield header, packet
