from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IP
from scapy.layers.inet6 import (
    ICMPv6EchoRequest,
    ICMPv6ND_Redirect,
    ICMPv6PacketTooBig,
    ICMPv6TimeExceeded,
    IPv6,
    IPv6ExtHdrFragment,
)
from scapy.packet import Packet

from srd.tunnel.packets import parse_untrusted
from srd.tunnel.rewrite import (
    CE,
    ECT_0,
    ECT_1,
    NOT_ECT,
    apply_outer_ecn,
    mark_ce,
    packet_too_big,
)
from tests.srd.tunnel.inner import V4, V6, ipv4, ipv6, packets, tcp, udp, words_sum

ROUTER_V4, ROUTER_V6 = "10.88.0.254", "fd88::254"


def traffic_class_of(packet: bytes) -> int:
    return int(IP(packet).tos if packet[0] >> 4 == 4 else IPv6(packet).tc)


def with_class(packet: bytes, traffic_class: int) -> bytes:
    """The packet as scapy builds it with another class."""
    layers = IP(packet) if packet[0] >> 4 == 4 else IPv6(packet)
    if isinstance(layers, IP):
        layers.tos = traffic_class
        del layers.chksum
    else:
        layers.tc = traffic_class
    built = bytes(layers)
    header_bytes = parse_untrusted(built).header_bytes if packet[0] >> 4 == 4 else 40
    return built[:header_bytes] + packet[header_bytes:]


@given(packets)
def test_mark_ce__changes_the_two_bits_alone(packet: bytes) -> None:
    marked = bytearray(packet)
    was = traffic_class_of(packet)
    assert mark_ce(memoryview(marked)) == (was & CE != NOT_ECT)
    assert bytes(marked) == with_class(packet, was | CE if was & CE else was)
    parse_untrusted(bytes(marked))


@given(identification=st.integers(0, 0xFFFF), tos=st.integers(0, 255), outer=st.integers(0, 3))
def test_apply_outer_ecn__keeps_the_checksum_right(identification: int, tos: int, outer: int) -> None:
    packet = bytearray(bytes(ipv4(id=identification, tos=tos) / udp()))
    apply_outer_ecn(memoryview(packet), outer)
    assert words_sum(bytes(packet[:20])) == 0xFFFF
    assert bytes(packet) == with_class(bytes(packet), packet[1])


@pytest.mark.parametrize("checksum", [0, 1, 2, 3, 0xFFFC, 0xFFFD, 0xFFFE])
@pytest.mark.parametrize("inner", [NOT_ECT, ECT_0, ECT_1, CE])
def test_apply_outer_ecn__checksums_with_a_carry(checksum: int, inner: int) -> None:
    packet = bytearray(bytes(ipv4(id=0, tos=inner) / udp()))
    was = int.from_bytes(packet[10:12], "big")
    packet[4:6] = ((was - checksum) % 0xFFFF).to_bytes(2, "big")
    packet[10:12] = checksum.to_bytes(2, "big")
    assert words_sum(bytes(packet[:20])) == 0xFFFF
    for outer in (NOT_ECT, ECT_1, CE):
        changed = bytearray(packet)
        apply_outer_ecn(memoryview(changed), outer)
        assert words_sum(bytes(changed[:20])) == 0xFFFF


def test_mark_ce__a_wrong_checksum_stays_wrong() -> None:
    packet = bytearray(bytes(ipv4(tos=ECT_0, chksum=0x1234) / udp()))
    before = words_sum(bytes(packet[:20]))
    assert mark_ce(memoryview(packet))
    assert words_sum(bytes(packet[:20])) == before


def too_big(packet: Packet) -> bytes | None:
    source = ROUTER_V6 if isinstance(packet, IPv6) else ROUTER_V4
    return packet_too_big(bytes(packet), mtu=1300, source=ip_address(source).packed)


@pytest.mark.parametrize("payload_bytes", [0, 1, 519, 520, 521, 1400])
def test_packet_too_big__ipv4(payload_bytes: int) -> None:
    packet = bytes(ipv4(flags="DF", tos=1) / tcp(seq=77) / bytes(payload_bytes))
    answer = too_big(IP(packet))
    assert answer is not None
    parse_untrusted(answer)
    error = IP(answer)
    assert (error.src, error.dst, error.len, error.tos) == (ROUTER_V4, V4[0], len(answer), 0xC0)
    assert (error[ICMP].type, error[ICMP].code, error[ICMP].nexthopmtu, error[ICMP].reserved) == (3, 4, 1300, 0)
    assert len(answer) == min(576, 28 + len(packet))
    assert answer[28:] == packet[: len(answer) - 28]
    assert words_sum(answer[20:]) == 0xFFFF


@pytest.mark.parametrize("payload_bytes", [0, 1, 1171, 1172, 1173, 1400])
def test_packet_too_big__ipv6(payload_bytes: int) -> None:
    packet = bytes(ipv6() / udp() / bytes(payload_bytes))
    answer = too_big(IPv6(packet))
    assert answer is not None
    parse_untrusted(answer)
    error = IPv6(answer)
    assert (error.src, error.dst, error.plen) == (ROUTER_V6, V6[0], len(answer) - 40)
    assert (error[ICMPv6PacketTooBig].type, error[ICMPv6PacketTooBig].mtu) == (2, 1300)
    assert len(answer) == min(1280, 48 + len(packet))
    assert answer[48:] == packet[: len(answer) - 48]
    checksum = error[ICMPv6PacketTooBig].cksum
    del error[ICMPv6PacketTooBig].cksum
    assert IPv6(bytes(error))[ICMPv6PacketTooBig].cksum == checksum


@pytest.mark.parametrize(
    "packet",
    [
        ipv4(flags="DF") / ICMP(type="echo-request"),
        ipv4(flags="DF") / ICMP(type="echo-reply"),
        ipv4(flags="DF+MF") / udp() / bytes(100),
        ipv6() / ICMPv6EchoRequest(),
        ipv6() / IPv6ExtHdrFragment(m=1) / udp() / bytes(96),
        ipv6(dst="ff0e::1") / udp(),
    ],
    ids=lambda packet: packet.summary(),
)
def test_packet_too_big__answers(packet: Packet) -> None:
    assert too_big(packet) is not None


@pytest.mark.parametrize(
    "packet",
    [
        ipv4() / udp(),
        ipv4(flags="DF") / ICMP(type="time-exceeded") / bytes(28),
        ipv4(flags="DF") / ICMP(type="redirect") / bytes(28),
        ipv4(flags="DF") / ICMP(type=99),
        ipv4(flags="DF", proto=1),
        ipv4(flags="DF", frag=10, proto=17) / bytes(100),
        ipv4(flags="DF", dst="224.0.0.1") / udp(),
        ipv4(flags="DF", dst="255.255.255.255") / udp(),
        ipv4(flags="DF", src="0.0.0.1") / udp(),
        ipv4(flags="DF", src="127.0.0.1") / udp(),
        ipv4(flags="DF", src="224.0.0.1") / udp(),
        ipv4(flags="DF", src="255.255.255.255") / udp(),
        ipv6(src="::") / udp(),
        ipv6(src="ff02::1") / udp(),
        ipv6() / ICMPv6TimeExceeded() / bytes(48),
        ipv6() / ICMPv6PacketTooBig() / bytes(48),
        ipv6() / ICMPv6ND_Redirect(),
        ipv6(nh=58),
        ipv6() / IPv6ExtHdrFragment(offset=12, nh=17) / bytes(96),
        ipv6() / IPv6ExtHdrFragment(offset=12, m=1, nh=17) / bytes(96),
    ],
    ids=lambda packet: packet.summary(),
)
def test_packet_too_big__never_answers(packet: Packet) -> None:
    assert too_big(packet) is None


@given(packet=packets, mtu=st.integers(1280, 65_535))
def test_packet_too_big__is_a_valid_packet_that_has_no_answer(packet: bytes, mtu: int) -> None:
    inner = parse_untrusted(packet)
    answer = packet_too_big(packet, mtu=mtu, source=inner.destination)
    if answer is None:
        return
    error = parse_untrusted(answer)
    assert (error.source, error.destination, error.length) == (inner.destination, inner.source, len(answer))
    assert packet_too_big(answer, mtu=mtu, source=inner.destination) is None
