"""netns.netem.packet_ops: operations on frames."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from netns.netem.packet_ops import Frames

FRAMES = Frames()
U32 = st.integers(0, 2**32 - 1)


def checksum(header: bytes) -> int:
    total = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return int(total) ^ 0xFFFF


def ipv4(*, tos: int, identification: int = 0) -> bytes:
    header = struct.pack("!BBHHHBBH4s4s", 0x45, tos, 20, identification, 0, 64, 17, 0, b"\x0a\0\0\x01", b"\x0a\0\0\x02")
    return bytes(12) + b"\x08\x00" + header[:10] + struct.pack("!H", checksum(header)) + header[12:]


def ipv6(*, traffic_class: int) -> bytes:
    return (
        bytes(12) + b"\x86\xdd" + struct.pack("!IHBB", 6 << 28 | traffic_class << 20 | 0x12345, 0, 17, 64) + bytes(32)
    )


@given(st.integers(0, 255), st.integers(0, 65535))
def test_frames__an_ipv4_mark_keeps_the_checksum_right(tos: int, identification: int) -> None:
    frame = ipv4(tos=tos, identification=identification)
    marked = FRAMES.marked(frame)
    if tos & 3 == 0:
        assert marked is None
        return
    assert marked is not None
    assert marked[15] == tos | 3
    assert checksum(marked[14:34]) == 0
    assert marked[:15] + marked[16:24] + marked[26:] == frame[:15] + frame[16:24] + frame[26:]


@given(st.integers(0, 255))
def test_frames__an_ipv6_mark(traffic_class: int) -> None:
    frame = ipv6(traffic_class=traffic_class)
    marked = FRAMES.marked(frame)
    if traffic_class & 3 == 0:
        assert marked is None
    else:
        assert marked == ipv6(traffic_class=traffic_class | 3)


def test_frames__others_cannot_be_marked() -> None:
    assert FRAMES.marked(bytes(12) + b"\x08\x06" + bytes(40)) is None
    assert FRAMES.marked(ipv4(tos=1)[:33]) is None
    assert FRAMES.marked(ipv6(traffic_class=1)[:53]) is None
    assert FRAMES.marked(b"") is None


@given(st.binary(min_size=1, max_size=200), U32, U32)
def test_frames__corruption_flips_exactly_one_bit(frame: bytes, where: int, bit: int) -> None:
    damaged = FRAMES.corrupted(frame, draw=iter((where, bit)).__next__)
    assert len(damaged) == len(frame)
    different = int.from_bytes(frame, "big") ^ int.from_bytes(damaged, "big")
    assert different.bit_count() == 1


def test_frames__every_byte_and_bit_can_be_hit() -> None:
    frame = bytes(4)
    damaged = {
        FRAMES.corrupted(frame, draw=iter((byte << 30, bit << 29)).__next__) for byte in range(4) for bit in range(8)
    }
    assert len(damaged) == 32
