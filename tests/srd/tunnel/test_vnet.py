from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import ICMP
from scapy.layers.inet6 import IPv6ExtHdrFragment
from scapy.packet import Packet

from srd.tunnel import vnet
from srd.tunnel.packets import DropReason, InnerPacketError, parse_untrusted
from srd.tunnel.vnet import VnetHeader
from tests.srd.tunnel.inner import ipv4, ipv6, packets, tcp, udp

PAYLOAD = bytes(4000)
SUPER = {
    "tcp4": (ipv4() / tcp() / PAYLOAD, VnetHeader(vnet.NEEDS_CSUM, vnet.GSO_TCPV4, 40, 1448, 20, 16)),
    "tcp4 cwr": (ipv4() / tcp(flags="AC") / PAYLOAD, VnetHeader(vnet.NEEDS_CSUM, 0x81, 40, 1448, 20, 16)),
    "tcp6": (ipv6() / tcp() / PAYLOAD, VnetHeader(vnet.NEEDS_CSUM, vnet.GSO_TCPV6, 4060, 1428, 40, 16)),
    "udp4": (ipv4() / udp() / PAYLOAD, VnetHeader(vnet.NEEDS_CSUM, vnet.GSO_UDP_L4, 28, 1200, 20, 6)),
    "udp6": (ipv6() / udp() / PAYLOAD, VnetHeader(vnet.NEEDS_CSUM, vnet.GSO_UDP_L4, 48, 1200, 40, 6)),
    "complete": (ipv4() / tcp() / PAYLOAD, VnetHeader(0, vnet.GSO_TCPV4, 40, 1448)),
    "verified": (ipv4() / tcp() / PAYLOAD, VnetHeader(vnet.DATA_VALID, vnet.GSO_TCPV4, 40, 1448)),
}  # fmt: skip
TCP4, TCP4_HEADER = SUPER["tcp4"]
UDP4, UDP4_HEADER = SUPER["udp4"]
FRAGMENT = ipv4(flags="MF") / tcp() / PAYLOAD
FRAGMENT_V6 = ipv6() / IPv6ExtHdrFragment(m=1) / tcp() / PAYLOAD


def accepted(header: VnetHeader, packet: Packet) -> bool:
    inner = parse_untrusted(bytes(packet))
    try:
        found = vnet.parse_untrusted(header.pack(), packet=inner)
    except InnerPacketError as error:
        return error.reason != DropReason.BAD_OFFLOAD
    return found == header


def test_pack__is_the_kernel_s_layout() -> None:
    header = VnetHeader(flags=1, gso_type=4, hdr_len=0x102, gso_size=0x304, csum_start=0x506, csum_offset=0x708)
    assert header.pack() == bytes([1, 4, 2, 1, 4, 3, 6, 5, 8, 7])
    assert vnet.parse(header.pack() + b"packet") == header


@pytest.mark.parametrize("name", SUPER)
def test_parse_untrusted__super_packets(name: str) -> None:
    packet, header = SUPER[name]
    assert accepted(header, packet)


def test_parse_untrusted__packets_as_on_a_wire() -> None:
    for packet in (TCP4, UDP4, FRAGMENT, ipv4() / ICMP(), ipv6(nh=132)):
        assert accepted(vnet.NONE, packet)
        assert accepted(VnetHeader(hdr_len=20), packet)
        assert accepted(VnetHeader(flags=vnet.DATA_VALID), packet)


def test_parse_untrusted__a_checksum_of_a_packet_in_the_packet() -> None:
    inside = bytes(ipv4() / tcp() / PAYLOAD)
    packet = ipv4() / udp(dport=4789) / (bytes(8) + inside)
    assert accepted(VnetHeader(vnet.NEEDS_CSUM, csum_start=20 + 8 + 8 + 20, csum_offset=16), packet)


@pytest.mark.parametrize(
    ("packet", "header"),
    [
        (TCP4, TCP4_HEADER._replace(flags=4)),
        (TCP4, TCP4_HEADER._replace(flags=0x81)),
        (TCP4, TCP4_HEADER._replace(hdr_len=4041)),
        (TCP4, TCP4_HEADER._replace(gso_size=0)),
        (TCP4, TCP4_HEADER._replace(gso_size=0xFFFF)),
        (TCP4, TCP4_HEADER._replace(gso_size=1)),
        (TCP4, TCP4_HEADER._replace(csum_start=22)),
        (TCP4, TCP4_HEADER._replace(csum_offset=6)),
        *((TCP4, TCP4_HEADER._replace(gso_type=kind)) for kind in (0x80, 2, 3, 4, 5, 0x85, 0x20, 0x21, 0x40)),
        *((UDP4, UDP4_HEADER._replace(gso_type=kind)) for kind in (0x80, 1, 3, 4, 0x85)),
        (UDP4, UDP4_HEADER._replace(csum_offset=16)),
        (UDP4, UDP4_HEADER._replace(flags=0)),
        (UDP4, UDP4_HEADER._replace(flags=vnet.DATA_VALID)),
        (FRAGMENT, TCP4_HEADER),
        (FRAGMENT_V6, SUPER["tcp6"][1]._replace(csum_start=48)),
        (ipv4() / ICMP() / PAYLOAD, TCP4_HEADER),
        (TCP4, VnetHeader(vnet.NEEDS_CSUM, csum_start=19, csum_offset=16)),
        (TCP4, VnetHeader(vnet.NEEDS_CSUM, csum_start=20, csum_offset=4040 - 21)),
        (TCP4, VnetHeader(vnet.NEEDS_CSUM, csum_start=4039)),
        (TCP4, VnetHeader(vnet.NEEDS_CSUM, csum_start=0xFFFF, csum_offset=0xFFFF)),
    ],
)  # fmt: skip
def test_parse_untrusted__bad_flow(packet: Packet, header: VnetHeader) -> None:
    assert not accepted(header, packet)


def test_parse_untrusted__the_last_two_bytes_may_be_the_checksum() -> None:
    assert accepted(VnetHeader(vnet.NEEDS_CSUM, csum_start=20, csum_offset=4040 - 22), TCP4)


def test_parse_untrusted__cut() -> None:
    inner = parse_untrusted(bytes(TCP4))
    for length in range(vnet.HEADER_BYTES):
        with pytest.raises(InnerPacketError, match=f"a virtio_net_hdr of {length} bytes"):
            vnet.parse_untrusted(bytes(length), packet=inner)


@pytest.mark.parametrize(
    ("payload_bytes", "gso_size", "count"), [(0, 1448, 1), (1448, 1448, 1), (1449, 1448, 2), (2896, 1448, 2), (9, 0, 1)]
)
def test_segment_count(payload_bytes: int, gso_size: int, count: int) -> None:
    inner = parse_untrusted(bytes(ipv4() / tcp() / bytes(payload_bytes)))
    header = VnetHeader(gso_type=vnet.GSO_TCPV4, gso_size=gso_size)
    assert vnet.segment_count(header, packet=inner) == count
    assert vnet.segment_count(vnet.NONE, packet=inner) == 1


_edges = st.sampled_from([0, 1, 6, 16, 20, 40, 100, 0xFFFF]) | st.integers(0, 0xFFFF)
_flags = st.sampled_from([0, 1, 2, 3]) | st.integers(0, 255)
_types = st.sampled_from([0, 1, 3, 4, 5, 0x81, 0x84]) | st.integers(0, 255)
headers = st.builds(VnetHeader, _flags, _types, _edges, _edges, _edges, _edges)


@given(packets, headers)
def test_parse_untrusted__raises_nothing_else(packet: bytes, header: VnetHeader) -> None:
    inner = parse_untrusted(packet)
    with suppress(InnerPacketError):
        found = vnet.parse_untrusted(header.pack(), packet=inner)
        assert struct.pack("<BBHHHH", *found) == header.pack()
        assert found.hdr_len <= inner.length
        if found.flags & vnet.NEEDS_CSUM:
            assert inner.header_bytes <= found.csum_start
            assert found.csum_start + found.csum_offset + 2 <= inner.length
        if found.gso_type != vnet.GSO_NONE:
            assert 0 < found.gso_size < 0xFFFF
            assert not inner.is_fragment
