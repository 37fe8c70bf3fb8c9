from __future__ import annotations

from contextlib import suppress
from ipaddress import ip_address

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IPOption_NOP
from scapy.layers.inet6 import IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop
from scapy.packet import Packet, Raw

from srd.tunnel.packets import TCP, UDP, DropReason, InnerPacket, InnerPacketError, parse_untrusted
from tests.srd.tunnel.inner import EXTENSIONS, SEED, V4, V6, extended, hostile, ipv4, ipv6, packets, tcp, udp

ICMP_V4, NO_NEXT_HEADER, SCTP = 1, 59, 132


def parsed(packet: Packet) -> InnerPacket:
    return parse_untrusted(bytes(packet), seed=SEED)


def reason_of(packet: bytes, *, size_bytes: int | None = None) -> DropReason:
    with pytest.raises(InnerPacketError) as error:
        parse_untrusted(packet, size_bytes=size_bytes, seed=SEED)
    assert "\n" not in str(error.value)
    return error.value.reason


def test_parse_untrusted__ipv4_tcp() -> None:
    packet = parsed(ipv4(tos=0b101110_01) / tcp(options=[("MSS", 1460)]) / b"payload")
    assert (packet.version, packet.protocol, packet.ecn, packet.dscp) == (4, TCP, 0b01, 0b101110)
    assert (packet.source, packet.destination) == tuple(ip_address(address).packed for address in V4)
    assert (packet.header_bytes, packet.payload_at, packet.length) == (20, 44, 51)
    assert packet.is_ordered
    assert not packet.is_fragment


def test_parse_untrusted__ipv6_udp() -> None:
    packet = parsed(ipv6(tc=0b001010_11, fl=0xFFFFF) / udp() / b"payload")
    assert (packet.version, packet.protocol, packet.ecn, packet.dscp) == (6, UDP, 0b11, 0b001010)
    assert (packet.source, packet.destination) == tuple(ip_address(address).packed for address in V6)
    assert (packet.header_bytes, packet.payload_at, packet.length) == (40, 48, 55)
    assert not packet.is_ordered, "ENA Express leaves UDP unordered"
    assert not packet.is_fragment


def test_parse_untrusted__options_of_ipv4() -> None:
    packet = parsed(ipv4(options=[IPOption_NOP()] * 3) / udp() / b"x")
    assert (packet.header_bytes, packet.payload_at) == (24, 32)


@pytest.mark.parametrize("names", [[name] for name in EXTENSIONS] + [list(EXTENSIONS)], ids=str)
def test_parse_untrusted__walks_extension_headers(names: list[str]) -> None:
    packet = parsed(extended(ipv6(), names, tcp() / b"payload"))
    assert (packet.protocol, packet.is_ordered, packet.is_fragment) == (TCP, True, False)
    assert packet.length - packet.payload_at == len(b"payload")
    assert packet.header_bytes == packet.payload_at - 20
    assert packet.flow == parsed(ipv6() / tcp()).flow, "a flow is its 5-tuple, whatever lies between"


def test_parse_untrusted__bounds_extension_headers() -> None:
    headers = ipv6()
    for _ in range(8):
        headers /= IPv6ExtHdrDestOpt()
    assert parsed(headers / udp()).protocol == UDP
    assert reason_of(bytes(headers / IPv6ExtHdrDestOpt() / udp())) == DropReason.TOO_MANY_EXTENSIONS


@pytest.mark.parametrize(
    ("packet", "protocol"),
    [
        (ipv4() / ICMP(), ICMP_V4),
        (ipv4(proto=SCTP) / b"data", SCTP),
        (ipv6(nh=SCTP) / b"data", SCTP),
        (ipv6(nh=NO_NEXT_HEADER), NO_NEXT_HEADER),
        (ipv4(proto=SCTP), SCTP),
    ],
    ids=["icmp", "sctp", "sctp of ipv6", "no next header", "no payload"],
)
def test_parse_untrusted__other_protocols(packet: Packet, protocol: int) -> None:
    found = parsed(packet)
    assert (found.protocol, found.is_ordered) == (protocol, False)
    assert found.payload_at == found.header_bytes


@pytest.mark.parametrize(
    "fragments",
    [
        [
            ipv4(flags="MF") / tcp() / bytes(100),
            ipv4(flags="MF", frag=15, proto=TCP) / bytes(120),
            ipv4(frag=30, proto=TCP) / b"1",
        ],
        [
            ipv6() / IPv6ExtHdrFragment(m=1, nh=TCP) / tcp() / bytes(100),
            ipv6() / IPv6ExtHdrFragment(m=1, offset=15, nh=TCP) / bytes(120),
            ipv6() / IPv6ExtHdrHopByHop() / IPv6ExtHdrFragment(offset=30, nh=TCP) / b"1",
        ],
    ],
    ids=["ipv4", "ipv6"],
)
def test_parse_untrusted__fragments_are_one_flow_without_order(fragments: list[Packet]) -> None:
    found = [parsed(fragment) for fragment in fragments]
    assert all(packet.is_fragment and not packet.is_ordered for packet in found)
    assert {(packet.protocol, packet.flow) for packet in found} == {(TCP, found[0].flow)}
    assert all(packet.payload_at == packet.header_bytes for packet in found)


def flows_of(packet: Packet) -> list[int]:
    """Its flow by four seeds: of two flows never the same."""
    return [parse_untrusted(bytes(packet), seed=bytes([seed])).flow for seed in range(4)]


def test_parse_untrusted__flow() -> None:
    first = flows_of(ipv4() / tcp() / b"1")
    assert flows_of(ipv4(id=7, ttl=3) / tcp(seq=9, flags="F") / b"12") == first
    others = [
        ipv4() / udp(sport=40000, dport=80),
        ipv4() / tcp(sport=40001),
        ipv4() / tcp(dport=81),
        ipv4(src="10.88.0.3") / tcp(),
        ipv4(dst="10.88.0.3") / tcp(),
        ipv4(src=V4[1], dst=V4[0]) / tcp(),
    ]
    assert first not in [flows_of(packet) for packet in others]


def test_parse_untrusted__a_seed_separates_what_collides_with_another() -> None:
    packet = bytes(ipv4() / udp())
    packets_ = [packet[:20] + port.to_bytes(2, "big") + packet[22:] for port in range(4000)]
    first: dict[int, bytes] = {}
    colliding = [
        (first[flow], packet)
        for packet in packets_
        if first.setdefault(flow := parse_untrusted(packet, seed=SEED).flow, packet) is not packet
    ]
    assert 60 < len(colliding) < 200, "4,000 of 65,536 hashes: 120, with a deviation of 11"
    still = [
        parse_untrusted(one, seed=b"another").flow == parse_untrusted(other, seed=b"another").flow
        for one, other in colliding
    ]
    assert sum(still) < 5


def test_parse_untrusted__cuts_padding() -> None:
    for packet in (ipv4() / udp() / b"1", ipv6() / udp() / b"1"):
        plain = bytes(packet)
        padded = parse_untrusted(plain + bytes(30), seed=SEED)
        assert padded == parse_untrusted(plain, seed=SEED)
        assert padded.length == len(plain)


@pytest.mark.parametrize("packet", [ipv4() / tcp() / bytes(1000), ipv6() / udp() / bytes(1000)], ids=["ipv4", "ipv6"])
def test_parse_untrusted__of_the_beginning_of_a_packet(packet: Packet) -> None:
    whole = bytes(packet)
    expected = parse_untrusted(whole, seed=SEED)
    for beginning in range(expected.payload_at, len(whole)):
        assert parse_untrusted(whole[:beginning], size_bytes=len(whole), seed=SEED) == expected
        with pytest.raises(InnerPacketError):
            parse_untrusted(whole[:beginning], size_bytes=len(whole) - 1)
    for beginning in range(expected.header_bytes + 8):
        assert reason_of(whole[:beginning], size_bytes=len(whole)) == DropReason.TRUNCATED


def test_parse_untrusted__of_a_part_of_the_options() -> None:
    whole = bytes(ipv4(options=[IPOption_NOP()] * 8, proto=SCTP) / bytes(100))
    for beginning in range(20, 28):
        assert reason_of(whole[:beginning], size_bytes=len(whole)) == DropReason.TRUNCATED
    assert parse_untrusted(whole[:28], size_bytes=len(whole)).header_bytes == 28


def test_parse_untrusted__without_a_seed_no_flow_is_hashed() -> None:
    assert parse_untrusted(bytes(ipv4() / tcp())).flow == 0


def test_parse_untrusted__up_to_65535_bytes() -> None:
    assert parsed(ipv4() / tcp() / Raw(bytes(65_535 - 40))).length == 65_535
    assert parsed(ipv6() / tcp() / Raw(bytes(65_535 - 60))).length == 65_535
    assert reason_of(bytes(ipv6() / tcp() / Raw(bytes(65_536 - 60)))) == DropReason.BAD_LENGTH


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (b"", "truncated"),
        (b"\x45", "truncated"),
        (b"\x60", "truncated"),
        (b"\x00" * 40, "bad_version"),
        (b"\xff" * 40, "bad_version"),
        (bytes(ipv4() / udp() / b"12")[:-1], "truncated"),
        (bytes(ipv6() / udp() / b"12")[:-1], "truncated"),
        (bytes(ipv4(ihl=4) / udp()), "bad_length"),
        (bytes(ipv4(len=19) / udp()), "bad_length"),
        (bytes(ipv4(len=0) / udp()), "bad_length"),
        (bytes(ipv4(chksum=0x1234) / udp()), "bad_checksum"),
        (bytes(ipv4(proto=UDP) / bytes(7)), "truncated"),
        (bytes(ipv4(proto=TCP) / bytes(19)), "truncated"),
        (bytes(ipv4() / tcp(dataofs=4)), "bad_length"),
        (bytes(ipv4() / tcp(dataofs=6)), "bad_length"),
        (bytes(ipv6(nh=0, plen=0) / IPv6ExtHdrHopByHop() / bytes(100)), "jumbo"),
        (bytes(ipv6(nh=60) / b"\x06\x00"), "truncated"),
        (bytes(ipv6(nh=60) / b"\x06\x09" / bytes(70)), "truncated"),
        (bytes(ipv6(nh=60) / b"\x3b\x09" / bytes(70)), "truncated"),
        (bytes(ipv6(nh=44) / b"\x06\x00\x00"), "truncated"),
    ],
)
def test_parse_untrusted__bad_flow(packet: bytes, reason: str) -> None:
    assert reason_of(packet) == reason


def test_parse_untrusted__a_checksum_that_is_zero_both_ways() -> None:
    header = bytearray(bytes(ipv4(proto=SCTP, id=0)))
    header[10:12] = bytes(2)
    missing = 0xFFFF - sum(int.from_bytes(header[at : at + 2], "big") for at in range(0, 20, 2)) % 0xFFFF
    header[4:6] = missing.to_bytes(2, "big")  # the identification makes the sum 0xFFFF, so that the checksum is 0
    assert parse_untrusted(bytes(header)).protocol == SCTP
    header[4:6] = (missing ^ 1).to_bytes(2, "big")
    assert reason_of(bytes(header)) == DropReason.BAD_CHECKSUM


@given(packet=packets, data=st.data())
def test_parse_untrusted__accepts_what_scapy_builds(packet: bytes, data: st.DataObject) -> None:
    found = parse_untrusted(memoryview(packet), seed=SEED)
    assert found.length == len(packet)
    assert found.header_bytes <= found.payload_at <= found.length
    reason_of(packet[: data.draw(st.integers(0, len(packet) - 1))])


@given(packet=hostile, more_bytes=st.just(0) | st.integers(0, 70_000))
@example(packet=bytes(40), more_bytes=0)
def test_parse_untrusted__raises_nothing_else(packet: bytes, more_bytes: int) -> None:
    with suppress(InnerPacketError):
        found = parse_untrusted(memoryview(packet), size_bytes=len(packet) + more_bytes, seed=SEED)
        assert 20 <= found.header_bytes <= found.payload_at <= found.length <= len(packet) + more_bytes
        assert found.header_bytes <= len(packet)
        assert 0 <= found.flow <= 0xFFFF
