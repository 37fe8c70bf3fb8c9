"""What a tunnel changes in inner packets, the ICMP errors that it answers them with, and packets of its own.

Rules.
1. A packet has been through `parse_untrusted` of `srd.tunnel.packets`, and has no bytes behind its length.
2. ECN (RFC 3168): the queue marks a packet that would else be dropped, and what comes out of the tunnel gets the mark
   of the outer header, by the table of RFC 6040. Where the packet is not ECN-capable, the mark is a drop.
3. The checksum of an IPv4 header is updated, not computed again (RFC 1624): a header that was damaged stays so.
4. TCP and UDP checksums cover none of the bits that are changed. TTL is the kernels' job, which forward at both ends.
5. An ICMP error is never the answer to what RFC 1122, section 3.2.2 and RFC 4443, section 2.4 name.
"""

from __future__ import annotations

import struct
from typing import Final

from srd.tunnel.packets import (
    FRAGMENT_OFFSET,
    ICMP,
    ICMPV6,
    IPV4_BYTES,
    IPV6_BYTES,
    NO_NEXT_HEADER,
    InnerPacket,
    parse_untrusted,
)

NOT_ECT: Final = 0b00
ECT_1: Final = 0b01
ECT_0: Final = 0b10
CE: Final = 0b11

_DECAPSULATED: Final = {  # RFC 6040, figure 4: inner -> by outer Not-ECT, ECT(1), ECT(0), CE
    NOT_ECT: (NOT_ECT, NOT_ECT, NOT_ECT, None),
    ECT_1: (ECT_1, ECT_1, ECT_1, CE),
    ECT_0: (ECT_0, ECT_1, ECT_0, CE),
    CE: (CE, CE, CE, CE),
}

_DONT_FRAGMENT: Final = 0x4000
_IPV4: Final = struct.Struct("!BBHHHBBH4s4s")
_IPV6: Final = struct.Struct("!IHBB16s16s")
_ICMP: Final = struct.Struct("!BBHI")
_ICMP_FRAGMENTATION_NEEDED: Final = (3, 4)
_ICMPV6_PACKET_TOO_BIG: Final = (2, 0)
_ICMP_QUERIES: Final = frozenset((0, 8, 9, 10, 13, 14, 15, 16, 17, 18, 42, 43))
"""The ICMP messages that are no errors; one of an unknown type may be an error."""
_ICMPV6_FIRST_QUERY: Final = 128
_ICMPV6_REDIRECT: Final = 137
_TTL: Final = 64
_LAST_HOP: Final = 1
_INTERNETWORK_CONTROL: Final = 0xC0
"""The class of ICMP errors (RFC 1812, section 4.3.2.5)."""
_MAX_ICMP_BYTES: Final = 576
"""RFC 1812, section 4.3.2.3."""
_MAX_ICMPV6_BYTES: Final = 1280
"""RFC 4443, section 2.4 (c)."""


def mark_ce(packet: memoryview) -> bool:
    """Mark a packet as having met congestion. False if it is not ECN-capable: then it has to be dropped instead."""
    ecn = outer_tos(packet) & CE
    if ecn == NOT_ECT:
        return False
    if ecn != CE:
        _set_ecn(packet, ecn=CE)
    return True


def apply_outer_ecn(packet: memoryview, outer_ecn: int) -> bool:
    """Give a packet the ECN bits that it leaves the tunnel with (RFC 6040). False if it has to be dropped."""
    inner_ecn = outer_tos(packet) & CE
    ecn = _DECAPSULATED[inner_ecn][outer_ecn]
    if ecn is None:
        return False
    if ecn != inner_ecn:
        _set_ecn(packet, ecn=ecn)
    return True


def outer_tos(packet: memoryview | bytes) -> int:
    """Return the TOS or traffic class for the outer header of one packet in one datagram.

    Its ECN bits are copied (RFC 6040, section 4.1, normal mode), and so is its DSCP (RFC 2983, uniform model).
    """
    if packet[0] >> 4 == 4:
        return packet[1]
    return (packet[0] << 8 | packet[1]) >> 4 & 0xFF


def packet_too_big(packet: memoryview | bytes, *, mtu: int, source: bytes) -> bytes | None:
    """Return the ICMP error for a packet that is longer than `mtu` (RFC 1191, RFC 4443 section 3.2).

    `mtu` is at least 68 for IPv4, and 1,280 for IPv6. `source` is an address of the packet's version, and not the own
    kernel's, which takes no packets from itself: the other end's. None where there must not be one: no answer to
    errors, to fragments but the first, to several hosts at once, nor to IPv4 packets that may be fragmented.
    """
    inner = parse_untrusted(packet)
    if inner.version == 4:
        may = _may_answer_v4(packet, inner)
        return _fragmentation_needed(packet, inner, mtu=mtu, source=source) if may else None
    may = _may_answer_v6(packet, inner)
    return _packet_too_big_v6(packet, inner, mtu=mtu, source=source) if may else None


def empty_packet(source: bytes) -> bytes:
    """Return a packet of a header alone, from an address of 4 or 16 bytes to nobody: no host forwards or answers it."""
    nobody = bytes(len(source))
    if len(source) == 16:
        return _IPV6.pack(6 << 28, 0, NO_NEXT_HEADER, _LAST_HOP, source, nobody)
    fields = (0x45, 0, IPV4_BYTES, 0, _DONT_FRAGMENT, _LAST_HOP, NO_NEXT_HEADER)
    checksum = _internet_checksum(_IPV4.pack(*fields, 0, source, nobody))
    return _IPV4.pack(*fields, checksum, source, nobody)


def _set_ecn(packet: memoryview, *, ecn: int) -> None:
    if packet[0] >> 4 == 6:
        packet[1] = packet[1] & ~(CE << 4) | ecn << 4
        return
    tos = packet[1]
    packet[1] = tos & ~CE | ecn
    # RFC 1624, equation 3. The version and the header's length are in the high byte of the word, and cancel out.
    checksum = packet[10] << 8 | packet[11]
    total = (checksum ^ 0xFFFF) + (tos ^ 0xFFFF) + packet[1]
    total = (total & 0xFFFF) + (total >> 16)
    total = ((total & 0xFFFF) + (total >> 16)) ^ 0xFFFF
    packet[10], packet[11] = total >> 8, total & 0xFF


def _may_answer_v4(packet: memoryview | bytes, inner: InnerPacket) -> bool:
    fragment = packet[6] << 8 | packet[7]
    if not fragment & _DONT_FRAGMENT or fragment & FRAGMENT_OFFSET:
        return False
    if inner.source[0] in (0, 127) or inner.source[0] >= 224 or inner.destination[0] >= 224:
        return False
    return inner.protocol != ICMP or _icmp_type(packet, inner) in _ICMP_QUERIES


def _may_answer_v6(packet: memoryview | bytes, inner: InnerPacket) -> bool:
    """Decide as RFC 4443 section 2.4 (e) does, by which multicast is answered, as its senders need the path's MTU."""
    if inner.source[0] == 0xFF or not any(inner.source):
        return False
    if inner.is_fragment and int.from_bytes(packet[inner.header_bytes - 6 : inner.header_bytes - 4], "big") & ~0b111:
        return False  # the first one is as long
    kind = _icmp_type(packet, inner)
    return inner.protocol != ICMPV6 or (kind >= _ICMPV6_FIRST_QUERY and kind != _ICMPV6_REDIRECT)


def _icmp_type(packet: memoryview | bytes, inner: InnerPacket) -> int:
    return packet[inner.header_bytes] if inner.header_bytes < inner.length else -1


def _fragmentation_needed(packet: memoryview | bytes, inner: InnerPacket, *, mtu: int, source: bytes) -> bytes:
    quoted = bytes(packet[: min(inner.length, _MAX_ICMP_BYTES - IPV4_BYTES - _ICMP.size)])
    kind, code = _ICMP_FRAGMENTATION_NEEDED
    checksum = _internet_checksum(_ICMP.pack(kind, code, 0, mtu) + quoted)
    message = _ICMP.pack(kind, code, checksum, mtu) + quoted
    length = IPV4_BYTES + len(message)
    fields = (0x45, _INTERNETWORK_CONTROL, length, 0, _DONT_FRAGMENT, _TTL, ICMP)
    checksum = _internet_checksum(_IPV4.pack(*fields, 0, source, inner.source))
    return _IPV4.pack(*fields, checksum, source, inner.source) + message


def _packet_too_big_v6(packet: memoryview | bytes, inner: InnerPacket, *, mtu: int, source: bytes) -> bytes:
    quoted = bytes(packet[: min(inner.length, _MAX_ICMPV6_BYTES - IPV6_BYTES - _ICMP.size)])
    kind, code = _ICMPV6_PACKET_TOO_BIG
    length = _ICMP.size + len(quoted)
    pseudo_header = source + inner.source + struct.pack("!II", length, ICMPV6)
    checksum = _internet_checksum(pseudo_header + _ICMP.pack(kind, code, 0, mtu) + quoted)
    start = 6 << 28 | _INTERNETWORK_CONTROL << 20
    header = _IPV6.pack(start, length, ICMPV6, _TTL, source, inner.source)
    return header + _ICMP.pack(kind, code, checksum, mtu) + quoted


def _internet_checksum(data: bytes) -> int:
    """Return the checksum of RFC 1071 of a few bytes. Large packets: see `srd.tunnel.segments`."""
    padded = data if len(data) % 2 == 0 else data + b"\0"
    return 0xFFFF - int.from_bytes(padded, "big") % 0xFFFF  # 2^16 is 1 modulo 65,535
