"""The pool against a model that remembers every piece."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from devmem.errors import PoolError
from devmem.pool import Pool

CHUNK = 100
CHUNKS = 5


class PoolMachine(RuleBasedStateMachine):
    """Open, fill, hold, drop and close as receive queues and applications do, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool(CHUNK * CHUNKS + 37, chunk_bytes=CHUNK)
        self.open_chunks: list[int] = []
        self.pieces: list[tuple[int, int]] = []

    def touched(self, piece: tuple[int, int]) -> set[int]:
        offset, length = piece
        return {byte // CHUNK * CHUNK for byte in range(offset, offset + max(length, 1))}

    def pinned(self) -> set[int]:
        return set(self.open_chunks).union(*(self.touched(piece) for piece in self.pieces))

    @rule()
    def open(self) -> None:
        pinned = self.pinned()
        offset = self.pool.open()
        if offset is None:
            assert len(pinned) == CHUNKS
        else:
            assert offset not in pinned, "a chunk that somebody holds was handed out"
            assert offset in range(0, CHUNK * CHUNKS, CHUNK)
            self.open_chunks.append(offset)

    @precondition(lambda self: self.open_chunks)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        chunk = data.draw(st.sampled_from(self.open_chunks))
        self.open_chunks.remove(chunk)
        self.pool.close(chunk)

    @precondition(lambda self: self.open_chunks)
    @rule(data=st.data(), start=st.integers(0, CHUNK - 1), length=st.integers(0, CHUNK))
    def hold(self, data: st.DataObject, start: int, length: int) -> None:
        chunk = data.draw(st.sampled_from(self.open_chunks))
        piece = (chunk + start, min(length, CHUNK - start))
        self.pool.hold(piece[0], length=piece[1])
        self.pieces.append(piece)

    @precondition(lambda self: self.pieces)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        piece = data.draw(st.sampled_from(self.pieces))
        self.pieces.remove(piece)
        self.pool.drop(piece[0], length=piece[1])

    @invariant()
    def free(self) -> None:
        assert self.pool.free_chunks == CHUNKS - len(self.pinned())


TestPool = PoolMachine.TestCase
TestPool.settings = settings(deadline=None, max_examples=50, stateful_step_count=30)


@pytest.mark.parametrize(("size", "chunk"), [(100, 0), (100, -1), (100, 101), (0, 1)])
def test_pool__sizes_that_cannot_be(size: int, chunk: int) -> None:
    with pytest.raises(PoolError, match=f"chunk_bytes: {chunk} is not between 1 and the pool's size"):
        Pool(size, chunk_bytes=chunk)


def test_open__never_more_than_there_is() -> None:
    pool = Pool(4 * CHUNK + 99, chunk_bytes=CHUNK)
    assert sorted(pool.open() or 0 for _ in range(4)) == [0, 100, 200, 300]
    assert pool.open() is None
    assert pool.free_chunks == 0


def test_hold__a_piece_over_two_chunks_pins_both() -> None:
    pool = Pool(2 * CHUNK, chunk_bytes=CHUNK)
    pool.open(), pool.open()
    pool.hold(90, length=20)
    pool.close(0)
    pool.close(100)
    assert pool.free_chunks == 0
    pool.drop(90, length=20)
    assert pool.free_chunks == 2


def test_drop__twice() -> None:
    pool = Pool(2 * CHUNK, chunk_bytes=CHUNK)
    pool.open()
    pool.hold(0, length=10)
    pool.close(0)
    pool.drop(0, length=10)
    with pytest.raises(PoolError, match="chunk 0 has nothing held"):
        pool.drop(0, length=10)
    assert pool.free_chunks == 2


def test_drop__of_what_nobody_holds_in_an_open_chunk() -> None:
    """It would free the chunk that a receive queue is filling."""
    pool = Pool(2 * CHUNK, chunk_bytes=CHUNK)
    assert pool.open() == 0
    with pytest.raises(PoolError, match="chunk 0"):
        pool.drop(0, length=10)
    assert pool.free_chunks == 1


@pytest.mark.parametrize("offset", [0, CHUNK])
def test_close__of_a_chunk_that_is_not_open(offset: int) -> None:
    pool = Pool(2 * CHUNK, chunk_bytes=CHUNK)
    with pytest.raises(PoolError):
        pool.close(offset)
    assert pool.free_chunks == 2


def test_close__twice_while_a_piece_is_held() -> None:
    pool = Pool(2 * CHUNK, chunk_bytes=CHUNK)
    pool.open()
    pool.hold(0, length=10)
    pool.close(0)
    with pytest.raises(PoolError):
        pool.close(0)
    assert pool.free_chunks == 1


@pytest.mark.parametrize("offset", [-1, -CHUNK, 2 * CHUNK, 1 << 40])
def test_close__outside_the_pool(offset: int) -> None:
    pool = Pool(2 * CHUNK, chunk_bytes=CHUNK)
    pool.open(), pool.open()
    with pytest.raises(PoolError):
        pool.close(offset)
    assert pool.free_chunks == 0


@pytest.mark.parametrize(("offset", "length"), [(-1, 1), (195, 6), (200, 0), (200, 1)])
def test_hold__outside_the_pool(offset: int, length: int) -> None:
    pool = Pool(2 * CHUNK, chunk_bytes=CHUNK)
    with pytest.raises(PoolError, match="are not within the pool"):
        pool.hold(offset, length=length)
    with pytest.raises(PoolError, match="are not within the pool"):
        pool.drop(offset, length=length)
