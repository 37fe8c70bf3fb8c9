from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP, UDP, IPOption_NOP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrHopByHop, IPv6ExtHdrRouting
from scapy.packet import Packet, Raw

from srd.tunnel import vnet
from srd.tunnel.packets import InnerPacketError, parse_untrusted
from srd.tunnel.segments import complete_checksum, fragments, segments
from srd.tunnel.vnet import VnetHeader
from tests.srd.tunnel.inner import hostile, ipv4, ipv6, tcp, udp

FIN, PSH, CWR = 0x01, 0x08, 0x80


def ones_complement(value: int) -> int:
    while value > 0xFFFF:
        value = (value & 0xFFFF) + (value >> 16)
    return value


def offloaded(packet: Packet, *, segment_bytes: int = 0, is_partial: bool = True) -> tuple[VnetHeader, bytes]:
    """A packet as the kernel hands it over: the sum of the pseudo header in place of the transport's checksum."""
    data = bytearray(bytes(packet))
    inner = parse_untrusted(bytes(data))
    is_tcp = inner.protocol == 6
    offset = 16 if is_tcp else 6
    field = slice(inner.header_bytes + offset, inner.header_bytes + offset + 2)
    kind = {(4, True): 1, (6, True): 4, (4, False): 5, (6, False): 5}[inner.version, is_tcp] if segment_bytes else 0
    if not is_partial:
        return VnetHeader(0, kind, inner.payload_at, segment_bytes), bytes(data)
    # The sum over everything is -0. Without the field and the transport's bytes, that of the pseudo header is left.
    covered = bytes(data[inner.header_bytes : field.start]) + bytes(2) + bytes(data[field.stop :])
    covered += bytes(len(covered) % 2)
    total = sum(int.from_bytes(covered[at : at + 2], "big") for at in range(0, len(covered), 2))
    checksum = int.from_bytes(data[field], "big")
    data[field] = ones_complement((0xFFFF - checksum) + (0xFFFF - ones_complement(total))).to_bytes(2, "big")
    header = VnetHeader(vnet.NEEDS_CSUM, kind, inner.payload_at, segment_bytes, inner.header_bytes, offset)
    vnet.parse_untrusted(header.pack(), packet=inner)
    return header, bytes(data)


def wire_segments(packet: Packet, *, segment_bytes: int) -> list[bytes]:
    """What segmentation has to result in, packet by packet, with the lengths and checksums that scapy computes."""
    transport = TCP if packet.haslayer(TCP) else UDP
    payload = bytes(packet[transport].payload)
    starts = range(0, len(payload), segment_bytes) or [0]
    found = []
    for number, start in enumerate(starts):
        segment = packet.copy()
        segment[transport].remove_payload()
        segment /= Raw(payload[start : start + segment_bytes])
        if isinstance(segment, IP):
            segment.id = (segment.id + number) & 0xFFFF
        if transport is TCP:
            flags = int(segment[TCP].flags)
            flags &= ~CWR if number else 0xFF
            flags &= 0xFF if start == starts[-1] else ~(FIN | PSH)
            segment[TCP].flags = flags
            segment[TCP].seq = (segment[TCP].seq + start) & 0xFFFFFFFF
        found.append(bytes(segment))
    return found


HEADERS = {
    "tcp4": ipv4(id=65_534, flags="DF", tos=1) / tcp(seq=2**32 - 2000, flags="FPAEC", options=[("Timestamp", (1, 2))]),
    "tcp4 with options": ipv4(options=[b"\x01\x01\x01\x00"]) / tcp(options=[("NOP", None)] * 8),
    "tcp6": ipv6(fl=7, tc=2) / tcp(flags="PA"),
    "tcp6 with extensions": ipv6() / IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt() / tcp(flags="FA"),
    "tcp6 with a routing header": ipv6() / IPv6ExtHdrRouting(addresses=["fd88::9", "fd88::a"]) / tcp(flags="FA"),
    "udp4": ipv4(id=3) / udp(),
    "udp6": ipv6() / udp(),
}


@pytest.mark.parametrize("name", ["tcp4", "tcp4 with options", "tcp6", "tcp6 with extensions"])
def test_segments__of_a_complete_checksum(name: str) -> None:
    packet = HEADERS[name] / Raw(bytes(at % 251 for at in range(5000)))
    header, data = offloaded(packet, segment_bytes=1448, is_partial=False)
    assert segments(header, data) == wire_segments(packet, segment_bytes=1448)


def test_segments__padding_is_cut() -> None:
    header, data = offloaded(HEADERS["tcp6"] / Raw(bytes(range(200))), segment_bytes=64)
    assert segments(header, data + b"padding") == segments(header, data)


@given(
    name=st.sampled_from(sorted(HEADERS)),
    payload=st.binary(max_size=300),
    segment_bytes=st.integers(1, 310),
    ports=st.integers(0, 0xFFFF),
)
def test_segments__any_content(name: str, payload: bytes, segment_bytes: int, ports: int) -> None:
    packet = HEADERS[name].copy() / Raw(payload)
    packet[TCP if packet.haslayer(TCP) else UDP].dport = ports
    header, data = offloaded(packet, segment_bytes=segment_bytes)
    found = segments(header, memoryview(data))
    assert len(found) == vnet.segment_count(header, packet=parse_untrusted(data))
    assert found == wire_segments(packet, segment_bytes=segment_bytes)
    assert b"".join(segment[parse_untrusted(segment).payload_at :] for segment in found) == payload


@given(name=st.sampled_from(sorted(HEADERS)), payload=st.binary(max_size=70), port=st.integers(0, 0xFFFF))
def test_complete_checksum__is_scapy_s(name: str, payload: bytes, port: int) -> None:
    packet = HEADERS[name].copy() / Raw(payload)
    packet[TCP if packet.haslayer(TCP) else UDP].dport = port
    header, data = offloaded(packet)
    whole = bytearray(data)
    complete_checksum(header, memoryview(whole))
    expected = bytes(packet)
    assert segments(header, data) == [bytes(whole)]
    if expected[header.csum_start + header.csum_offset :][:2] != bytes(2):  # 0xFFFF is the same number
        assert bytes(whole) == expected


@pytest.mark.parametrize("packet", [ipv4() / udp(), ipv6() / udp()], ids=["ipv4", "ipv6"])
def test_segments__a_udp_checksum_is_never_0(packet: Packet) -> None:
    payload = bytearray(4)
    packet /= Raw(bytes(payload))
    checksum = (IP if isinstance(packet, IP) else IPv6)(bytes(packet))[UDP].chksum
    packet[Raw].load = checksum.to_bytes(2, "big") * 2  # each datagram has two of the four bytes
    single = packet.copy()
    single[Raw].load = packet[Raw].load[:2]
    correction = (IP if isinstance(packet, IP) else IPv6)(bytes(single))[UDP].chksum
    packet[Raw].load = ones_complement(checksum + correction).to_bytes(2, "big") * 2
    header, data = offloaded(packet, segment_bytes=2)
    fields = [segment[parse_untrusted(segment).header_bytes + 6 :][:2] for segment in segments(header, data)]
    assert fields == [b"\xff\xff"] * 2
    single[Raw].load = packet[Raw].load[:2]
    [whole] = segments(*offloaded(single))
    assert whole[parse_untrusted(whole).header_bytes + 6 :][:2] == b"\xff\xff"


def test_complete_checksum__nothing_to_do() -> None:
    for header in (vnet.NONE, VnetHeader(flags=vnet.DATA_VALID, csum_start=20, csum_offset=16)):
        packet = bytearray(bytes(ipv4() / tcp(chksum=0x1234)))
        complete_checksum(header, memoryview(packet))
        assert bytes(packet) == bytes(ipv4() / tcp(chksum=0x1234))
        assert segments(header, bytes(packet)) == [bytes(packet)]


def test_complete_checksum__of_a_packet_in_the_packet() -> None:
    inside = ipv4() / tcp() / Raw(bytes(range(99)))
    _, data = offloaded(inside)
    outer = bytearray(bytes(ipv4() / udp(dport=4789) / Raw(bytes(8) + data)))
    complete_checksum(VnetHeader(vnet.NEEDS_CSUM, csum_start=36 + 20, csum_offset=16), memoryview(outer))
    assert bytes(outer[36:]) == bytes(inside)


@given(
    payload=st.binary(min_size=1, max_size=3000),
    mtu=st.integers(68, 1500),
    offset=st.integers(0, 100),
    more=st.booleans(),
)
def test_fragments__hold_the_packet(payload: bytes, mtu: int, offset: int, *, more: bool) -> None:
    """Of a fragment, too: with `more` its own fragments are all followed by another."""
    packet = bytes(ipv4(tos=0xBB, id=7, frag=offset, flags="MF" if more else 0, proto=253) / Raw(payload))
    pieces = fragments(packet, parse_untrusted(packet), mtu=mtu)
    at = offset * 8
    for index, piece in enumerate(pieces):
        inner = parse_untrusted(piece)  # checks the header's checksum
        assert inner.length == len(piece) <= mtu
        assert (piece[1], piece[4:6], piece[8:10], piece[12:20]) == (0xBB, packet[4:6], packet[8:10], packet[12:20])
        field = int.from_bytes(piece[6:8], "big")
        assert (field & 0x1FFF) * 8 == at
        assert bool(field & 0x2000) == (more or index < len(pieces) - 1)
        at += len(piece) - 20
    assert b"".join(piece[20:] for piece in pieces) == payload


def test_fragments__none_where_it_must_not_be_fragmented() -> None:
    for packet in (
        ipv4(flags="DF") / udp() / Raw(bytes(2000)),
        ipv6() / udp() / Raw(bytes(2000)),
        ipv4(options=[IPOption_NOP()]) / udp() / Raw(bytes(2000)),
    ):
        assert fragments(bytes(packet), parse_untrusted(bytes(packet)), mtu=1280) == []


@given(hostile, st.integers(-100, 1500))
def test_fragments__of_anything_that_is_a_packet(packet: bytes, mtu: int) -> None:
    try:
        inner = parse_untrusted(packet)
    except InnerPacketError:
        return
    for piece in fragments(packet, inner, mtu=mtu):
        assert parse_untrusted(piece).length <= mtu
