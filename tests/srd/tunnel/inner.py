"""Inner packets for the tests of the tunnel, made by scapy."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_NOP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop, IPv6ExtHdrRouting
from scapy.layers.ipsec import AH
from scapy.packet import Packet, Raw

SEED = b"a secret"
V4, V6 = ("10.88.0.1", "10.88.0.2"), ("fd88::1", "fd88::2")

EXTENSIONS = {
    "hop-by-hop": IPv6ExtHdrHopByHop(),
    "routing": IPv6ExtHdrRouting(addresses=["fd88::9"], segleft=0),
    "destination": IPv6ExtHdrDestOpt(),
    "atomic fragment": IPv6ExtHdrFragment(),
    "authentication": AH(payloadlen=4, icv=bytes(12)),
}


_NUMBERS = {
    IPv6ExtHdrHopByHop: 0,
    ICMP: 1,
    TCP: 6,
    UDP: 17,
    IPv6ExtHdrRouting: 43,
    IPv6ExtHdrFragment: 44,
    AH: 51,
    IPv6ExtHdrDestOpt: 60,
}


def ipv4(**fields: Any) -> Packet:
    return IP(**{"src": V4[0], "dst": V4[1], **fields})


def ipv6(**fields: Any) -> Packet:
    return IPv6(**{"src": V6[0], "dst": V6[1], **fields})


def tcp(**fields: Any) -> Packet:
    return TCP(**{"sport": 40000, "dport": 80, "flags": "A", "seq": 1000, **fields})


def udp(**fields: Any) -> Packet:
    return UDP(**{"sport": 40000, "dport": 443, **fields})


def extended(ip: Packet, names: Iterable[str], rest: Packet) -> Packet:
    """An IPv6 packet with extension headers between `ip` and `rest`."""
    packet = ip
    for name in names:
        packet /= EXTENSIONS[name].copy()
    packet /= rest
    for layer in packet.iterpayloads():
        if isinstance(layer, AH):  # the only one in which scapy leaves it 0
            layer.nh = _NUMBERS[type(layer.payload)]
    return packet


def words_sum(data: bytes) -> int:
    """The ones' complement sum, computed as RFC 1071 describes it; of valid data 0xFFFF."""
    total: int = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + bytes(len(data) % 2)))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


_ports = st.integers(0, 0xFFFF)
_payloads = st.binary(max_size=100).map(Raw)
_transports = st.one_of(
    st.builds(
        lambda sport, dport, options: tcp(sport=sport, dport=dport, options=[("NOP", None)] * options),
        _ports,
        _ports,
        st.integers(0, 40),
    ),
    st.builds(lambda sport, dport: udp(sport=sport, dport=dport), _ports, _ports),
    st.just(ICMP()),
)
_contents = st.builds(lambda transport, payload: transport / payload, _transports, _payloads)
_packets_v4 = st.builds(
    lambda tos, identification, options, rest: (
        ipv4(tos=tos, id=identification, options=[IPOption_NOP()] * options) / rest
    ),
    st.integers(0, 255),
    st.integers(0, 0xFFFF),
    st.integers(0, 40),
    _contents,
)
_packets_v6 = st.builds(
    lambda traffic_class, label, names, rest: extended(ipv6(tc=traffic_class, fl=label), names, rest),
    st.integers(0, 255),
    st.integers(0, (1 << 20) - 1),
    st.lists(st.sampled_from(sorted(EXTENSIONS)), max_size=8),
    _contents,
)

packets = st.one_of(_packets_v4, _packets_v6).map(bytes)
"""Valid packets of all kinds."""


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A valid packet in which a few bytes of its headers are something else, and which may be cut, or longer."""
    packet = bytearray(draw(packets))
    for at, value in draw(st.lists(st.tuples(st.integers(0, 79), st.integers(0, 255)), max_size=4)):
        if at < len(packet):
            packet[at] = value
    if packet[0] >> 4 == 4 and (header_bytes := (packet[0] & 0xF) * 4) >= 20 and draw(st.booleans()):
        packet[10:12] = bytes(2)
        packet[10:12] = (words_sum(bytes(packet[:header_bytes])) ^ 0xFFFF).to_bytes(2, "big")
    return bytes(packet[: draw(st.integers(0, len(packet)))]) + draw(st.binary(max_size=3))


hostile = st.one_of(st.binary(max_size=200), st.binary(max_size=100).map(lambda rest: b"\x45" + rest), damaged())
