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

A super-packet of TCP is a message of its own, so that one that is delayed in the network delays no other flow. Packets
that are small share a message of one SRD packet.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from srd.errors import PacketError
from srd.tunnel import vnet

HEADER: Final = Struct("!HHIBx")
FRAME_BYTES: Final = HEADER.size + vnet.HEADER_BYTES
"""Of the header, with virtio's."""
VNET_AT: Final = HEADER.size
"""Where in a frame begins what is read from a TUN interface, and written to it."""
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


def header_untrusted(message: memoryview, *, at: int, length: int) -> FrameHeader:
    """Return the header at `at` of a message of `length` bytes. Raises PacketError if the frame exceeds it."""
    if at + FRAME_BYTES > min(length, len(message)):
        raise PacketError(f"{length - at} bytes are less than a frame's header")
    found = FrameHeader._make(HEADER.unpack_from(message, at))
    if at + FRAME_BYTES + found.length > length:
        raise PacketError(f"a frame of {found.length} bytes exceeds its message of {length}")
    return found


def frames_untrusted(message: memoryview) -> Iterator[tuple[FrameHeader, memoryview]]:
    """Yield each frame of a contiguous message: its header, and virtio's with the packet. Raises PacketError."""
    at = 0
    while at < len(message):
        header = header_untrusted(message, at=at, length=len(message))
        end = at + FRAME_BYTES + header.length
        yield header, message[at + VNET_AT : end]
        at = end
