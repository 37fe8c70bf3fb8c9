"""What is read of an inner packet: an IP packet that the kernel hands over, or that came out of the tunnel.

Rules.
1. Nobody can be trusted: programs at this end may write any bytes to a raw socket, and the other end may be hostile.
   All that is read is checked against the packet's length. The one exception is InnerPacketError; its reason is the
   name of the counter that its drop goes to.
2. The IP header's length field is the packet's length. Bytes behind it are padding, which the caller cuts. A
   super-packet (TSO, USO) has the length of all its segments in that field: at most 65,535 bytes, as the kernel gives
   a TUN interface no longer ones (GSO_LEGACY_MAX_SIZE). So IPv6 jumbo payloads (RFC 2675) are refused, as is an IPv4
   packet of length 0 (BIG TCP).
3. IPv6 extension headers (RFC 8200) are walked up to the transport header, or to the first one that is unknown.
4. A flow is the 5-tuple of TCP or UDP. All other packets of one protocol between two addresses are one flow; so are
   fragments, of which only the first has ports. An atomic fragment (RFC 6946) is no fragment.
5. Flows are hashed with a secret seed, so that nobody outside can choose ports that collide with the flow of somebody
   else (as in RFC 8290, section 5.3). The hash is Python's of bytes, SipHash (PEP 456), which costs 0.1 us.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from srd.errors import PacketError

HOP_BY_HOP: Final = 0
ICMP: Final = 1
TCP: Final = 6
UDP: Final = 17
ROUTING: Final = 43
FRAGMENT: Final = 44
AUTHENTICATION: Final = 51
ICMPV6: Final = 58
NO_NEXT_HEADER: Final = 59
DESTINATION_OPTIONS: Final = 60

IPV4_BYTES: Final = 20
"""An IPv4 header without options."""
IPV6_BYTES: Final = 40
"""An IPv6 header without extension headers."""
UDP_BYTES: Final = 8
TCP_BYTES: Final = 20
"""A TCP header without options."""
MAX_PACKET_BYTES: Final = 65_535
MAX_EXTENSIONS: Final = 8
"""IPv6 extension headers in one packet. RFC 8200 has six kinds, and one of them twice."""

MORE_FRAGMENTS: Final = 0x2000
FRAGMENT_OFFSET: Final = 0x1FFF

_IPV4: Final = struct.Struct("!BBHHHBBH4s4s")
_IPV6: Final = struct.Struct("!IHBB16s16s")
_ONES_COMPLEMENT: Final = 0xFFFF
_FLOW_MASK: Final = 0xFFFF


class DropReason(StrEnum):
    """Why a packet is not carried; each is the name of a counter."""

    TRUNCATED = "truncated"
    """It ends before its headers, or before the length that its IP header names."""
    BAD_VERSION = "bad_version"
    """Neither IPv4 nor IPv6."""
    BAD_LENGTH = "bad_length"
    """A length field that contradicts the header it is in."""
    BAD_CHECKSUM = "bad_checksum"
    """Of the IPv4 header."""
    JUMBO = "jumbo"
    """An IPv6 jumbo payload."""
    TOO_MANY_EXTENSIONS = "too_many_extensions"
    """More than MAX_EXTENSIONS IPv6 extension headers."""
    BAD_OFFLOAD = "bad_offload"
    """Its virtio_net_hdr does not fit it; see `srd.tunnel.vnet`."""


class InnerPacketError(PacketError):
    """An inner packet that cannot be carried."""

    def __init__(self, message: str, *, reason: DropReason) -> None:
        """Keep the counter's name beside the message."""
        super().__init__(message)
        self.reason = reason


@dataclass(slots=True)
class InnerPacket:
    """What the tunnel has to know of an inner packet. Offsets are in bytes from the IP header."""

    version: int
    """4 or 6."""
    protocol: int
    """Of the header at `header_bytes`; IPv6: the last next-header value. Of a fragment: what the fragments carry."""
    source: bytes
    """4 or 16 bytes."""
    destination: bytes
    length: int
    """Of the whole packet, from its IP header. What the caller passed may be longer."""
    header_bytes: int
    """Offset of the transport header; of a fragment: of what it carries."""
    payload_at: int
    """Offset of the payload of TCP or UDP; else, and in a fragment, `header_bytes`."""
    flow: int
    """16-bit hash of the flow; 0 if it was not asked for."""
    is_fragment: bool
    ecn: int
    """The two bits of RFC 3168."""
    dscp: int
    """The six bits of RFC 2474."""

    @property
    def is_ordered(self) -> bool:
        """Whether its flow has to be handed over in order: TCP alone, as ENA Express does."""
        return self.protocol == TCP and not self.is_fragment


def parse_untrusted(
    packet: memoryview | bytes, *, size_bytes: int | None = None, seed: bytes | None = None
) -> InnerPacket:
    """Read the headers of an inner packet. Raises InnerPacketError.

    `size_bytes`: of the whole packet, if `packet` is only its beginning, which must hold the headers; `seed`: a secret;
    without one the flow is not hashed, and is 0.
    """
    size_bytes = len(packet) if size_bytes is None else size_bytes
    if len(packet) == 0:
        raise InnerPacketError("a packet of 0 bytes", reason=DropReason.TRUNCATED)
    version = packet[0] >> 4
    if version == 4:
        return _ipv4(packet, size_bytes=size_bytes, seed=seed)
    if version == 6:
        return _ipv6(packet, size_bytes=size_bytes, seed=seed)
    raise InnerPacketError(f"version {version} is not IP's", reason=DropReason.BAD_VERSION)


def _ipv4(packet: memoryview | bytes, *, size_bytes: int, seed: bytes | None) -> InnerPacket:
    if len(packet) < IPV4_BYTES:
        raise _truncated(packet, needed=IPV4_BYTES)
    start, tos, length, _, fragment, _, protocol, _, source, destination = _IPV4.unpack_from(packet)
    header_bytes: int = (start & 0xF) * 4
    if header_bytes < IPV4_BYTES or length < header_bytes:
        raise InnerPacketError(
            f"an IPv4 header of {header_bytes} bytes in a packet of {length}", reason=DropReason.BAD_LENGTH
        )
    if length > size_bytes or header_bytes > len(packet):
        raise _truncated(packet, needed=length)
    # 2^16 is 1 modulo 65,535: the remainder is the ones' complement sum of the 16-bit words, which has to be 0.
    if int.from_bytes(packet[:header_bytes], "big") % _ONES_COMPLEMENT:
        raise InnerPacketError("the checksum of an IPv4 header is wrong", reason=DropReason.BAD_CHECKSUM)
    return _inner_packet(
        packet,
        version=4,
        protocol=protocol,
        source=source,
        destination=destination,
        length=length,
        header_bytes=header_bytes,
        is_fragment=fragment & (MORE_FRAGMENTS | FRAGMENT_OFFSET) != 0,
        traffic_class=tos,
        seed=seed,
    )


def _ipv6(packet: memoryview | bytes, *, size_bytes: int, seed: bytes | None) -> InnerPacket:
    if len(packet) < IPV6_BYTES:
        raise _truncated(packet, needed=IPV6_BYTES)
    start, payload_bytes, protocol, _, source, destination = _IPV6.unpack_from(packet)
    length: int = IPV6_BYTES + payload_bytes
    if payload_bytes == 0 and protocol == HOP_BY_HOP:
        raise InnerPacketError("an IPv6 jumbo payload", reason=DropReason.JUMBO)
    if length > MAX_PACKET_BYTES:
        raise InnerPacketError(f"an IPv6 packet of {length} bytes", reason=DropReason.BAD_LENGTH)
    if length > size_bytes:
        raise _truncated(packet, needed=length)
    header_bytes, is_fragment = IPV6_BYTES, False
    if protocol not in (TCP, UDP):
        protocol, header_bytes, is_fragment = _walk_extensions(packet, first=protocol, length=min(length, len(packet)))
    return _inner_packet(
        packet,
        version=6,
        protocol=protocol,
        source=source,
        destination=destination,
        length=length,
        header_bytes=header_bytes,
        is_fragment=is_fragment,
        traffic_class=start >> 20 & 0xFF,
        seed=seed,
    )


def _walk_extensions(packet: memoryview | bytes, *, first: int, length: int) -> tuple[int, int, bool]:
    """Return the protocol behind the extension headers, its offset, and whether the packet is a fragment."""
    kind, at = first, IPV6_BYTES
    for _ in range(MAX_EXTENSIONS + 1):
        if kind not in (HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, DESTINATION_OPTIONS):
            return kind, at, False
        if at + 8 > length:
            raise _truncated(packet, needed=at + 8)
        following = packet[at]
        if kind == FRAGMENT:
            extension_bytes = 8
            if packet[at + 2] or packet[at + 3] & ~0b110:  # an offset, or more fragments
                return following, at + extension_bytes, True
        elif kind == AUTHENTICATION:
            extension_bytes = (packet[at + 1] + 2) * 4  # RFC 4302: in units of 4 bytes, unlike all others
        else:
            extension_bytes = (packet[at + 1] + 1) * 8
        at += extension_bytes
        if at > length:
            raise _truncated(packet, needed=at)
        kind = following
    raise InnerPacketError(
        f"an IPv6 packet with more than {MAX_EXTENSIONS} extension headers", reason=DropReason.TOO_MANY_EXTENSIONS
    )


def _inner_packet(
    packet: memoryview | bytes,
    *,
    version: int,
    protocol: int,
    source: bytes,
    destination: bytes,
    length: int,
    header_bytes: int,
    is_fragment: bool,
    traffic_class: int,
    seed: bytes | None,
) -> InnerPacket:
    payload_at, ports = header_bytes, b""
    if not is_fragment and protocol in (TCP, UDP):
        payload_at = _payload_at(packet, protocol=protocol, header_bytes=header_bytes, length=length)
        ports = bytes(packet[header_bytes : header_bytes + 4])
    flow = 0
    if seed is not None:
        flow_id = b"%c%b%b%b" % (protocol, source, destination, ports)
        flow = hash(seed + flow_id) & _FLOW_MASK
    return InnerPacket(
        version,
        protocol,
        source,
        destination,
        length,
        header_bytes,
        payload_at,
        flow,
        is_fragment,
        traffic_class & 0b11,
        traffic_class >> 2,
    )


def _payload_at(packet: memoryview | bytes, *, protocol: int, header_bytes: int, length: int) -> int:
    payload_at = header_bytes + (TCP_BYTES if protocol == TCP else UDP_BYTES)
    if payload_at > min(length, len(packet)):
        raise _truncated(packet, needed=payload_at)
    if protocol == TCP:
        tcp_bytes = (packet[header_bytes + 12] >> 4) * 4
        payload_at = header_bytes + tcp_bytes
        if tcp_bytes < TCP_BYTES or payload_at > length:
            raise InnerPacketError(
                f"a TCP header of {tcp_bytes} bytes, of {length - header_bytes}", reason=DropReason.BAD_LENGTH
            )
    return payload_at


def _truncated(packet: memoryview | bytes, *, needed: int) -> InnerPacketError:
    return InnerPacketError(f"a packet that needs {needed} bytes has {len(packet)}", reason=DropReason.TRUNCATED)
