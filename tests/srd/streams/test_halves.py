"""srd.streams.halves: limits, pieces and order of one direction, without I/O."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.errors import PacketError
from srd.streams.halves import MERGED_BYTES, OutgoingFrame, ReceiveHalf, SendHalf
from srd.streams.wire import INITIAL_WINDOW_BYTES, MAX_AHEAD, MAX_PIECES, FrameKind, low_bits

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
    messages = []
    while (message := half.poll()) is not None:
        messages.append(message)
    return messages


def taken(half: ReceiveHalf) -> bytes:
    parts = []
    while (part := half.take()) is not None:
        parts.append(part)
    return b"".join(parts)


# -- sending --------------------------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=2500), max_size=20), st.sampled_from([0, (1 << 32) - 1500]))
def test_send__pieces_are_what_was_written(writes: list[bytes], offset: int) -> None:
    half = sender(limit=1 << 20, offset=offset)
    for data in writes:
        half.write(data)
    messages = polled(half)
    assert b"".join(bytes(message.payload) for message in messages) == b"".join(writes)
    for message in messages:
        assert 0 < len(message.payload) <= PIECE
        assert message.offset == low_bits(offset)
        offset += len(message.payload)
    assert half.buffered_bytes == 0


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


def test_send__a_limit_far_ahead_bad_flow() -> None:
    half = sender(limit=1500)
    half.on_limit_untrusted(MAX_AHEAD)
    with pytest.raises(PacketError, match=r"a limit .* ahead"):
        half.on_limit_untrusted(MAX_AHEAD + 1)


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


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=30), st.integers(0, 1 << 30), st.booleans())
def test_receive__puts_pieces_in_order(pieces: list[bytes], seed: int, wraps: bool) -> None:  # noqa: FBT001
    start = (1 << 32) - 1000 if wraps else 0
    half = receiver(offset=start)
    at = start
    placed = []
    for piece in pieces:
        placed.append((at, piece))
        at += len(piece)
    half_of_them = random.Random(seed)
    half_of_them.shuffle(placed)
    got = b""
    for offset, piece in placed:
        if half_of_them.random() < 0.3:
            half.on_end_untrusted(low_bits(at))
        half.on_data_untrusted(low_bits(offset), piece)
        got += taken(half)
    assert got == b"".join(pieces)
    assert not half.complete or half.end == at
    half.on_end_untrusted(low_bits(at))
    assert half.complete
    assert half.at_end


@pytest.mark.parametrize(
    ("offset", "data"),
    [(200, b"xx"), (199, b"xxxx"), (203, b"xxxxx"), (198, b"x" * 100), (50, b"x"), (40, b"x" * 20), (0, b"x")],
)
def test_receive__twice_bad_flow(offset: int, data: bytes) -> None:
    """Bytes before 100 were received in order; 200 to 204 and 300 to 304 wait."""
    half = receiver()
    half.on_data_untrusted(0, bytes(100))
    half.on_data_untrusted(200, b"abcd")
    half.on_data_untrusted(300, b"abcd")
    with pytest.raises(PacketError):
        half.on_data_untrusted(offset, data)


def test_receive__beyond_the_limit_bad_flow() -> None:
    half = receiver(window=1000)
    half.on_data_untrusted(0, bytes(600))
    assert half.next_limit() is None
    assert half.take() == bytes(600)
    half.on_data_untrusted(900, bytes(100))
    with pytest.raises(PacketError, match="beyond its limit"):
        half.on_data_untrusted(1000, b"x")
    assert (grant := half.next_limit()) is not None
    assert grant.offset == 1600
    assert half.next_limit() is None
    half.on_data_untrusted(1000, bytes(600))


def test_receive__grants_until_the_end() -> None:
    """The end overtakes what waits for a limit."""
    half = receiver(window=1000)
    half.on_end_untrusted(1500)
    half.on_data_untrusted(0, bytes(1000))
    assert half.take() is not None
    assert (grant := half.next_limit()) is not None
    assert grant.offset == 2000
    half.on_data_untrusted(1000, bytes(500))
    assert half.take() is not None
    assert half.next_limit() is None, "all of it is granted"


def test_receive__bytes_one_by_one_are_kept_together() -> None:
    half = ReceiveHalf(window_bytes=100_000)
    sent = bytes(offset % 251 for offset in range(100_000))
    for offset in range(len(sent)):
        half.on_data_untrusted(offset, sent[offset : offset + 1])
    taken = list(iter(half.take, None))
    assert b"".join(taken) == sent
    assert len(taken) <= 2 * len(sent) // MERGED_BYTES


def test_receive__too_many_pieces_bad_flow() -> None:
    half = receiver()
    for number in range(MAX_PIECES):
        half.on_data_untrusted(1 + 2 * number, b"x")
    with pytest.raises(PacketError, match="pieces"):
        half.on_data_untrusted(1 + 2 * MAX_PIECES, b"x")


@pytest.mark.parametrize("end", [0, 499, 1, (1 << 32) - 1])
def test_receive__an_end_before_what_has_arrived_bad_flow(end: int) -> None:
    half = receiver()
    half.on_data_untrusted(490, bytes(10))
    with pytest.raises(PacketError, match="contradicts"):
        half.on_end_untrusted(end)


def test_receive__two_ends_bad_flow() -> None:
    half = receiver()
    half.on_end_untrusted(500)
    half.on_end_untrusted(500)
    with pytest.raises(PacketError, match="contradicts"):
        half.on_end_untrusted(501)
    with pytest.raises(PacketError, match="beyond its limit or end"):
        half.on_data_untrusted(495, bytes(10))


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
