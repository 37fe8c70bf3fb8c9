from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.errors import PacketError
from srd.tunnel.frames import FRAME_BYTES, HEADER, ORDERED, VNET_AT, FrameHeader, frames_untrusted, header_untrusted
from tests.srd.tunnel.inner import SEED

packets = st.tuples(
    st.binary(max_size=80), st.integers(0, 0xFFFF), st.integers(0, 0xFFFFFFFF), st.sampled_from([0, ORDERED])
)


def frame(packet: bytes, flow: int, sequence: int, flags: int) -> bytes:
    return HEADER.pack(len(packet), flow, sequence, flags) + bytes(FRAME_BYTES - VNET_AT) + packet


@given(st.lists(packets))
def test_frames_untrusted__all_come_back_in_order(sent: list[tuple[bytes, int, int, int]]) -> None:
    message = memoryview(b"".join(frame(*each) for each in sent))
    found = [(header, bytes(rest[FRAME_BYTES - VNET_AT :])) for header, rest in frames_untrusted(message)]
    assert found == [(FrameHeader(len(packet), *header), packet) for packet, *header in sent]


@given(st.binary(max_size=200))
def test_frames_untrusted__any_bytes(message: bytes) -> None:
    try:
        found = list(frames_untrusted(memoryview(message)))
    except PacketError:
        return
    assert sum(FRAME_BYTES + header.length for header, _ in found) == len(message)


@given(packets, st.data())
def test_frames_untrusted__cut(sent: tuple[bytes, int, int, int], data: st.DataObject) -> None:
    whole = frame(*sent)
    cut = data.draw(st.integers(1, len(whole) - 1))
    with pytest.raises(PacketError):
        list(frames_untrusted(memoryview(whole)[:cut]))


def test_header_untrusted__of_a_message_whose_beginning_is_there() -> None:
    whole = frame(SEED * 100, 7, 9, ORDERED)
    header = header_untrusted(memoryview(whole)[:64], at=0, length=len(whole))
    assert header == (len(SEED) * 100, 7, 9, ORDERED)
    with pytest.raises(PacketError, match="exceeds its message of 100"):
        header_untrusted(memoryview(whole)[:64], at=0, length=100)
    with pytest.raises(PacketError, match="less than a frame's header"):
        header_untrusted(memoryview(whole)[: FRAME_BYTES - 1], at=0, length=len(whole))
