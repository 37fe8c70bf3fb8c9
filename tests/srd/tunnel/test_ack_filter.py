"""srd.tunnel.ack_filter: only acknowledgements that say nothing beside a later one are left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.packet import Packet, Raw

from srd.tunnel import frames, vnet
from srd.tunnel.ack_filter import AckFilter
from srd.tunnel.packets import parse_untrusted
from tests.srd.tunnel.inner import SEED, V4, ipv4, ipv6, tcp, udp

TIMESTAMPS = [("NOP", None), ("NOP", None), ("Timestamp", (7, 8))]
SACK = [("NOP", None), ("NOP", None), ("SAck", (5000, 6000))]


def ack(number: int, *, ip: Packet | None = None, data: bytes = b"", **fields: Any) -> bytes:
    packet = (ip or ipv4()) / tcp(ack=number, **fields)
    return bytes(packet / Raw(data) if data else packet)


def sent(packets: list[bytes], *, flow: int | None = None) -> list[bytes]:
    """What is left of packets that were read in one turn. `flow`: the hash that all have."""
    acks, left = AckFilter(), []
    for packet in packets:
        frame = memoryview(bytearray(bytes(frames.VNET_AT) + vnet.NONE.pack() + packet))
        inner = parse_untrusted(packet, seed=SEED)
        if not acks.merge(frame, inner if flow is None else replace(inner, flow=flow)):
            left.append(frame)
    return [bytes(frame[frames.FRAME_BYTES :]) for frame in left]


@pytest.mark.parametrize("ip", [ipv4(), ipv6(), ipv4(tos=0x28)], ids=["IPv4", "IPv6", "a DSCP"])
@pytest.mark.parametrize("options", [[], TIMESTAMPS], ids=["", "timestamps"])
def test_merge__the_last_one_takes_the_place_of_all_before(ip: Packet, options: list[Any]) -> None:
    packets = [ack(1000 * number, ip=ip, options=options) for number in range(1, 5)]
    other = ack(7, ip=ip, options=options, sport=1)
    assert sent([packets[0], other, *packets[1:]]) == [packets[-1], other]


def test_merge__numbers_wrap() -> None:
    packets = [ack(0xFFFFFFF0), ack(0x10)]
    assert sent(packets) == packets[1:]


@pytest.mark.parametrize(
    "packets",
    [
        [ack(1000), ack(1000)],
        [ack(1000), ack(1000, window=5)],
        [ack(2000), ack(1000)],
        [ack(1000), ack(1000 + (1 << 31))],
        [ack(1000, seq=1), ack(2000, seq=2)],
        [ack(1000, data=b"x"), ack(2000, seq=1001)],
        [ack(1000), ack(2000, data=b"x")],
        [ack(1000), ack(2000, options=SACK)],
        [ack(1000, options=SACK), ack(2000, options=SACK)],
        [ack(1000, options=TIMESTAMPS), ack(2000)],
        [ack(1000, ip=ipv4(tos=0)), ack(2000, ip=ipv4(tos=2))],
        [ack(1000), ack(2000, ip=ipv4(src=V4[1], dst=V4[0]))],
        [ack(1000, sport=1), ack(2000, sport=2)],
        [ack(1000, ip=ipv4(flags="MF")), ack(2000, ip=ipv4(flags="MF"))],
        [bytes(ipv4() / udp() / Raw(bytes(12))), bytes(ipv4() / udp() / Raw(bytes(11) + b"\1"))],
        *([ack(1000), ack(2000, flags="A" + flag)] for flag in "FSRPUEC"),
        *([ack(1000, flags="A" + flag), ack(2000)] for flag in "FSRPUEC"),
    ],
)
def test_merge__not_what_says_more_than_the_next(packets: list[bytes]) -> None:
    assert sent(packets, flow=1) == packets


def test_merge__none_moves_before_another_packet_of_its_connection() -> None:
    packets = [ack(1000), ack(1000, options=SACK), ack(2000), ack(3000)]
    assert sent(packets) == [*packets[:2], packets[3]]


packets_of_two = st.builds(
    lambda number, sport, options, flags: ack(number * 1000, sport=sport, options=options, flags=flags),
    st.integers(1, 4),
    st.sampled_from([1, 2]),
    st.sampled_from([[], [], TIMESTAMPS, SACK]),
    st.sampled_from(["A", "A", "A", "AF"]),
)


@given(st.lists(packets_of_two, max_size=12), st.sampled_from([None, 1]))
def test_merge__each_connection_learns_the_same(packets: list[bytes], flow: int | None) -> None:
    """Of each connection: what is not pure arrives, the last packet is the same, and all are in their order."""
    left = sent(packets, flow=flow)
    for sport in (1, 2):
        before, after = (
            [packet for packet in each if packet[20:22] == sport.to_bytes(2, "big")] for each in (packets, left)
        )
        assert after[-1:] == before[-1:]
        following = iter(before)
        assert all(packet in following for packet in after), "in their order"
        assert [packet for packet in after if not is_pure(packet)] == [each for each in before if not is_pure(each)]


def is_pure(packet: bytes) -> bool:
    return packet[33] == 0x10 and (len(packet) == 40 or packet[42:44] == b"\x08\x0a")
