"""The header that an interface with IFF_VNET_HDR puts before each packet: `struct virtio_net_hdr` (virtio 1.2, 5.1.6).

It says what is left to do in a packet: which checksum to complete, and into which segments to cut it.

    flags        u8   NEEDS_CSUM: the checksum at csum_start + csum_offset is the sum of the pseudo header only
    gso_type     u8   the kind of super-packet
    hdr_len      u16  a hint: bytes of headers; Linux writes how much of the packet it has in one piece
    gso_size     u16  payload bytes of each segment but the last
    csum_start   u16  where the bytes to sum up start
    csum_offset  u16  where the checksum is, from csum_start

Rules.
1. Little-endian, as after TUNSETVNETLE; 10 bytes (TUNSETVNETHDRSZ).
2. What comes from the other end is checked as the kernel checks it (linux/virtio_net.h, virtio_net_hdr_to_skb, and what
   segments the packet later), so that a write(2) never fails for it, and what `srd.tunnel.segments` needs besides.
3. UFO (gso_type 3) is refused: no interface of ours has it. So is a super-packet of more than MAX_SEGMENTS, which would
   make the kernel of its receiver work for many packets per packet.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from srd.tunnel.packets import TCP, UDP, DropReason, InnerPacket, InnerPacketError

HEADER_BYTES: Final = 10

NEEDS_CSUM: Final = 1
DATA_VALID: Final = 2
"""The checksum was verified. Linux writes it, and does not look at it in what is written to a TUN interface."""

GSO_NONE: Final = 0
GSO_TCPV4: Final = 1
GSO_TCPV6: Final = 4
GSO_UDP_L4: Final = 5
"""USO: datagrams."""
GSO_ECN: Final = 0x80
"""Flag beside GSO_TCPV4 and GSO_TCPV6: the TCP header has CWR set."""

TCP_CHECKSUM_AT: Final = 16
UDP_CHECKSUM_AT: Final = 6

MAX_SEGMENTS: Final = 2048
"""Of one super-packet. Linux sends at most 128 datagrams (UDP_MAX_SEGMENTS), and a TCP MSS of at least 48 bytes, which
makes 1,366 segments."""

_GSO_BY_FRAGS: Final = 0xFFFF
"""A gso_size that has a meaning of its own inside Linux."""
_HEADER: Final = struct.Struct("<BBHHHH")
_TYPES: Final = {(4, TCP): GSO_TCPV4, (6, TCP): GSO_TCPV6, (4, UDP): GSO_UDP_L4, (6, UDP): GSO_UDP_L4}


class VnetHeader(NamedTuple):
    """The fields of a `struct virtio_net_hdr`."""

    flags: int = 0
    gso_type: int = GSO_NONE
    hdr_len: int = 0
    gso_size: int = 0
    csum_start: int = 0
    csum_offset: int = 0

    def pack(self) -> bytes:
        """Return the 10 bytes."""
        return _HEADER.pack(*self)


NONE: Final = VnetHeader()
"""Nothing is left to do."""
NOTHING_LEFT: Final = NONE.pack()


def parse(data: memoryview | bytes) -> VnetHeader:
    """Read what the own kernel wrote: the first 10 bytes of `data`."""
    return VnetHeader._make(_HEADER.unpack_from(data))


def parse_untrusted(data: memoryview | bytes, *, packet: InnerPacket) -> VnetHeader:
    """Read what the other end sent: first in `data`. Raises InnerPacketError if it does not fit `packet`."""
    if len(data) < HEADER_BYTES:
        raise _misfit(f"a virtio_net_hdr of {len(data)} bytes")
    header = parse(data)
    if header == NONE:
        return NONE
    if header.flags & ~(NEEDS_CSUM | DATA_VALID):
        raise _misfit(f"flags {header.flags:#x}")
    if header.hdr_len > packet.length:
        raise _misfit(f"{header.hdr_len} bytes of headers in a packet of {packet.length}")
    if header.flags & NEEDS_CSUM:
        _check_checksum(header, packet)
    if header.gso_type != GSO_NONE:
        _check_gso(header, packet)
    return header


def segment_count(header: VnetHeader, *, packet: InnerPacket) -> int:
    """Return how many packets a packet is on a wire."""
    if header.gso_type == GSO_NONE or header.gso_size == 0:
        return 1
    return max(-(-(packet.length - packet.payload_at) // header.gso_size), 1)


def _check_checksum(header: VnetHeader, packet: InnerPacket) -> None:
    """Check that the checksum is behind the IP header; not where, as it may be that of a packet inside the packet."""
    if not packet.header_bytes <= header.csum_start <= packet.length - 2 - header.csum_offset:
        raise _misfit(
            f"a checksum at {header.csum_start} + {header.csum_offset} of a packet of {packet.length} bytes"
            f" with {packet.header_bytes} of IP header"
        )


def _check_gso(header: VnetHeader, packet: InnerPacket) -> None:
    kind = _TYPES.get((packet.version, packet.protocol))
    allowed = (kind, kind | GSO_ECN) if kind and packet.protocol == TCP else (kind,)
    if packet.is_fragment or header.gso_type not in allowed:
        raise _misfit(f"GSO type {header.gso_type:#x} for protocol {packet.protocol} of IPv{packet.version}")
    if not 0 < header.gso_size < _GSO_BY_FRAGS:
        raise _misfit(f"segments of {header.gso_size} bytes")
    if packet.length - packet.payload_at > MAX_SEGMENTS * header.gso_size:
        raise _misfit(f"more than {MAX_SEGMENTS} segments")
    if header.flags & NEEDS_CSUM:
        checksum_at = TCP_CHECKSUM_AT if packet.protocol == TCP else UDP_CHECKSUM_AT
        if (header.csum_start, header.csum_offset) != (packet.header_bytes, checksum_at):
            raise _misfit(f"the checksum of a super-packet at {header.csum_start} + {header.csum_offset}")
    elif packet.protocol == UDP:
        raise _misfit("USO with a checksum that is complete")


def _misfit(what: str) -> InnerPacketError:
    return InnerPacketError(f"a packet whose offload does not fit it: {what}", reason=DropReason.BAD_OFFLOAD)
