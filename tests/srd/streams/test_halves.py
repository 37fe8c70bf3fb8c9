"""srd.streams.halves: limits, pieces and order of one direction, without I/O."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.errors import PacketError
from srd.streams.halves import MERGED_BYTES, OutgoingFrame, ReceiveHalf, SendHalf
from srd.streams.wire import INITIAL_WINDOW_BYTES, MAX_PIECES, FrameKind

SEED = 21
PIECE = 1000


def sender(*, limit: int = INITIAL_WINDOW_BYTES, offset: int = 0) -> SendHalf:
    half = SendHalf(piece_bytes=PIECE)
    half.offset, half.limit = offset, offset + limit
    return half


def receiver(*, window: int = 1 << 20, offset: int = 0) -> ReceiveHalf:
    half = ReceiveHalf(window_bytes=window)
    half.offset = half.taken = half._highest = offset
    half.limit = offset + window
    return half


def polled(half: SendHalf) -> list[OutgoingFrame]:
    return list(iter(half.poll, None))


def taken(half: ReceiveHalf) -> bytes:
    return b"".join(iter(half.take, None))


def granted(half: ReceiveHalf) -> list[int]:
    """The limits that it has to tell: one, or none."""
    return [grant.offset for grant in islice(iter(half.next_limit, None), 2)]


# -- sending --------------------------------------------------------------------------------------------------------


def test_send__short_writes_are_one_message() -> None:
    half = sender()
    for number in range(10):
        half.write(bytes([number]))
    assert [bytes(message.payload) for message in polled(half)] == [bytes(range(10))]


def test_send__stops_at_the_limit_and_goes_on() -> None:
    half = sender(limit=1500)
    half.write(bytes(4000))
    assert [len(message.payload) for message in polled(half)] == [1000, 500]
    half.on_limit_untrusted(2000)
    half.on_limit_untrusted(1800)  # has overtaken it
    assert [len(message.payload) for message in polled(half)] == [500]
    assert half.buffered_bytes == 2000


def test_send__few_messages_from_the_lowest_that_is_not_acknowledged() -> None:
    half = sender(limit=1 << 30)
    half.write(bytes((MAX_PIECES + 10) * PIECE))
    messages = polled(half)
    assert len(messages) == MAX_PIECES
    for message in messages[1:]:
        half.on_acknowledged(message)
    assert half.poll() is None
    half.on_acknowledged(messages[0])
    assert len(polled(half)) == 10


def test_send__the_end_does_not_wait_for_the_limit() -> None:
    half = sender(limit=500)
    half.write(bytes(700))
    half.finish()
    end, data = polled(half)
    assert (end.kind, end.offset) == (FrameKind.EOF, 700)
    assert (data.kind, len(data.payload)) == (FrameKind.DATA, 500)
    half.on_acknowledged(end)
    half.on_acknowledged(data)
    assert not half.all_acknowledged
    half.on_limit_untrusted(700)
    (rest,) = polled(half)
    half.on_acknowledged(rest)
    assert half.all_acknowledged


# -- receiving ------------------------------------------------------------------------------------------------------


def test_receive__beyond_the_limit_bad_flow() -> None:
    half = receiver(window=1000)
    half.on_data_untrusted(0, bytes(600))
    assert granted(half) == []
    assert half.take() == bytes(600)
    half.on_data_untrusted(900, bytes(100))
    with pytest.raises(PacketError, match="beyond its limit"):
        half.on_data_untrusted(1000, b"x")
    assert granted(half) == [1600]
    half.on_data_untrusted(1000, bytes(600))


def test_receive__grants_until_the_end() -> None:
    """The end overtakes what waits for a limit."""
    half = receiver(window=1000)
    half.on_end_untrusted(1500)
    half.on_data_untrusted(0, bytes(1000))
    assert half.take() is not None
    assert granted(half) == [2000]
    half.on_data_untrusted(1000, bytes(500))
    assert half.take() is not None
    assert granted(half) == [], "all of it is granted"


def test_receive__bytes_one_by_one_are_kept_together() -> None:
    half = ReceiveHalf(window_bytes=100_000)
    sent = bytes(offset % 251 for offset in range(100_000))
    for offset in range(len(sent)):
        half.on_data_untrusted(offset, sent[offset : offset + 1])
    taken = list(iter(half.take, None))
    assert b"".join(taken) == sent
    assert len(taken) <= 2 * len(sent) // MERGED_BYTES


@given(st.lists(st.tuples(st.booleans(), st.integers(0, (1 << 32) - 1), st.integers(1, 3000)), max_size=60))
def test_receive__whatever_arrives_memory_is_bounded(arriving: list[tuple[bool, int, int]]) -> None:
    half = receiver(window=4000)
    for is_data, offset, length in arriving:
        try:
            if is_data:
                half.on_data_untrusted(offset % 6000, bytes(length))
            else:
                half.on_end_untrusted(offset)
        except PacketError:
            break
        held = sum(map(len, half._pieces.values())) + sum(map(len, half._ready))
        assert held <= 4000
