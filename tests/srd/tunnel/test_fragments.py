from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IPOption_NOP
from scapy.packet import Raw

from srd.tunnel.fragments import fragments
from srd.tunnel.packets import InnerPacketError, parse_untrusted
from tests.srd.tunnel.inner import hostile, ipv4, ipv6, udp


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
