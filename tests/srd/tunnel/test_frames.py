from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.errors import PacketError
from srd.tunnel.frames import FRAME_BYTES, HEADER, HEADERS_BYTES, ORDERED, VNET_AT, FrameHeader, frames_untrusted

packets = st.tuples(
    st.binary(max_size=400), st.integers(0, 0xFFFF), st.integers(0, 0xFFFFFFFF), st.sampled_from([0, ORDERED])
)


def frame(packet: bytes, flow: int, sequence: int, flags: int) -> bytes:
    return HEADER.pack(len(packet), flow, sequence, flags) + bytes(FRAME_BYTES - VNET_AT) + packet


def cut_at(message: bytes, cuts: list[int]) -> list[memoryview]:
    """The pieces of a message."""
    edges = sorted({0, len(message), *(cut % (len(message) + 1) for cut in cuts)})
    return [memoryview(message)[first:end] for first, end in pairwise(edges)]


@given(st.lists(packets), st.lists(st.integers(0, 1000)))
def test_frames_untrusted__all_come_back_in_order(sent: list[tuple[bytes, int, int, int]], cuts: list[int]) -> None:
    pieces = cut_at(b"".join(frame(*each) for each in sent), cuts)
    found = []
    for header, parts in frames_untrusted(pieces):
        assert len(parts) == 1 or len(parts[0]) >= HEADERS_BYTES, "headers are in one piece"
        found.append((header, b"".join(parts)[FRAME_BYTES - VNET_AT :]))
    assert found == [(FrameHeader(len(packet), *header), packet) for packet, *header in sent]


@given(st.binary(max_size=200), st.lists(st.integers(0, 1000)))
def test_frames_untrusted__any_bytes(message: bytes, cuts: list[int]) -> None:
    with suppress(PacketError):
        found = list(frames_untrusted(cut_at(message, cuts)))
        assert sum(FRAME_BYTES + header.length for header, _ in found) == len(message)


@given(packets, st.data())
def test_frames_untrusted__cut(sent: tuple[bytes, int, int, int], data: st.DataObject) -> None:
    whole = frame(*sent)
    cut = data.draw(st.integers(1, len(whole) - 1))
    with pytest.raises(PacketError, match=r"a frame needs \d+ bytes more"):
        list(frames_untrusted([memoryview(whole)[:cut]]))


def test_frames_untrusted__large_packets_are_not_copied() -> None:
    whole = bytearray(frame(bytes(1000), 7, 9, ORDERED))
    ((_, parts),) = frames_untrusted(cut_at(bytes(whole), [600]))
    assert [len(part) for part in parts] == [600 - VNET_AT, len(whole) - 600]
    assert all(isinstance(part, memoryview) for part in parts)
