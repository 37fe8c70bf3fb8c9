"""The pool against a model of every piece."""

from __future__ import annotations

import gc
import threading
import weakref
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from devmem.errors import PoolError, RegionError
from devmem.pool import Pool
from devmem.region import Region
from devmem.tokens import Tokens, ranges

CHUNK = 100
CHUNKS = 5
REGION = Region(4096)


def pool_of(size_bytes: int, *, chunk_bytes: int = CHUNK) -> Pool:
    return Pool(REGION, size_bytes=size_bytes, chunk_bytes=chunk_bytes)


@pytest.fixture
def pool() -> Pool:
    return pool_of(2 * CHUNK)


class PoolMachine(RuleBasedStateMachine):
    """Open, fill, hold, drop and close as receive queues and applications do, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = pool_of(CHUNK * CHUNKS + 37)
        self.open_chunks: list[int] = []
        self.pieces: list[tuple[int, int]] = []
        self.views: list[tuple[tuple[int, int], memoryview]] = []

    def touched(self, piece: tuple[int, int]) -> set[int]:
        offset, length = piece
        return {byte // CHUNK * CHUNK for byte in range(offset, offset + max(length, 1))}

    def pinned(self) -> set[int]:
        held = self.pieces + [piece for piece, _ in self.views]
        return set(self.open_chunks).union(*(self.touched(piece) for piece in held))

    @rule()
    def open(self) -> None:
        pinned = self.pinned()
        offset = self.pool.open()
        if offset is None:
            assert len(pinned) == CHUNKS
        else:
            assert offset not in pinned, "a held chunk was allocated"
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

    @precondition(lambda self: self.pieces)
    @rule(data=st.data())
    def view(self, data: st.DataObject) -> None:
        piece = data.draw(st.sampled_from(self.pieces))
        self.views.append((piece, self.pool.view(piece[0], length=piece[1])[1:]))

    @precondition(lambda self: self.views)
    @rule(data=st.data())
    def end_view(self, data: st.DataObject) -> None:
        self.views.pop(data.draw(st.integers(0, len(self.views) - 1)))

    @invariant()
    def free(self) -> None:
        assert self.pool.free_chunks == CHUNKS - len(self.pinned())


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=50, stateful_step_count=30)


@pytest.mark.parametrize(("size", "chunk"), [(100, 0), (100, -1), (100, 101), (0, 1)])
def test_pool__invalid_sizes(size: int, chunk: int) -> None:
    with pytest.raises(PoolError, match=f"chunk_bytes: {chunk} is not between 1 and the pool's size"):
        pool_of(size, chunk_bytes=chunk)


def test_hold__a_piece_over_two_chunks_pins_both(pool: Pool) -> None:
    pool.open(), pool.open()
    pool.hold(90, length=20)
    pool.close(0)
    pool.close(100)
    assert pool.free_chunks == 0
    pool.drop(90, length=20)
    assert pool.free_chunks == 2


def test_drop__twice(pool: Pool) -> None:
    pool.open()
    pool.hold(0, length=10)
    pool.close(0)
    pool.drop(0, length=10)
    with pytest.raises(PoolError, match="chunk 0 has nothing held"):
        pool.drop(0, length=10)
    assert pool.free_chunks == 2


def test_drop__of_an_unheld_piece_of_an_open_chunk(pool: Pool) -> None:
    """It would free the chunk that a receive queue is filling."""
    assert pool.open() == 0
    with pytest.raises(PoolError, match="chunk 0"):
        pool.drop(0, length=10)
    assert pool.free_chunks == 1


@pytest.mark.parametrize("offset", [0, CHUNK])
def test_close__of_a_chunk_that_is_not_open(pool: Pool, offset: int) -> None:
    with pytest.raises(PoolError):
        pool.close(offset)
    assert pool.free_chunks == 2


def test_close__twice_while_a_piece_is_held(pool: Pool) -> None:
    pool.open()
    pool.hold(0, length=10)
    pool.close(0)
    with pytest.raises(PoolError):
        pool.close(0)
    assert pool.free_chunks == 1


@pytest.mark.parametrize("offset", [-1, -CHUNK, 2 * CHUNK, 1 << 40])
def test_close__outside_the_pool(pool: Pool, offset: int) -> None:
    pool.open(), pool.open()
    with pytest.raises(PoolError):
        pool.close(offset)
    assert pool.free_chunks == 0


@pytest.mark.parametrize(("offset", "length"), [(-1, 1), (195, 6), (200, 0), (200, 1)])
def test_hold__outside_the_pool(pool: Pool, offset: int, length: int) -> None:
    with pytest.raises(PoolError, match="are not within the pool"):
        pool.hold(offset, length=length)
    with pytest.raises(PoolError, match="are not within the pool"):
        pool.drop(offset, length=length)


# -- views ----------------------------------------------------------------------------------------------------------


def held_chunk() -> Pool:
    """A pool of two chunks: one free, one closed with a piece at 10 of 20 bytes held."""
    pool = pool_of(2 * CHUNK)
    pool.open()
    pool.hold(10, length=20)
    pool.close(0)
    return pool


@pytest.fixture
def held() -> Pool:
    return held_chunk()


def test_view__is_the_memory_itself(held: Pool) -> None:
    view = held.view(10, length=20)
    REGION.array[15] = 55
    assert view[5] == 55
    assert len(view) == 20


def test_view__keeps_its_piece_from_reuse_after_its_return(held: Pool) -> None:
    """So do views of the view, until the last is deleted."""
    views = [held.view(10, length=20), held.view(12, length=4)]
    derived = np.frombuffer(views[0], np.float32)[2:4][::2]
    held.drop(10, length=20)
    assert held.free_chunks == 1
    assert held.open() == CHUNK
    assert held.open() is None
    views.clear()
    assert held.open() is None
    del derived
    assert held.open() == 0


def test_view__that_ends_in_another_thread(held: Pool) -> None:
    views = [held.view(10, length=20)]
    held.drop(10, length=20)
    assert held.free_chunks == 1
    thread = threading.Thread(target=views.clear)
    thread.start()
    thread.join()
    assert held.free_chunks == 2
    assert held.idle


@pytest.mark.parametrize(("offset", "length"), [(CHUNK, 1), (CHUNK - 1, 2), (2 * CHUNK, 1), (-1, 1)])
def test_view__of_an_unheld_piece_bad_flow(held: Pool, offset: int, length: int) -> None:
    with pytest.raises(PoolError):
        held.view(offset, length=length)


def test_view__of_a_returned_piece_bad_flow(held: Pool) -> None:
    held.drop(10, length=20)
    with pytest.raises(PoolError, match="bytes 10 to 30 are not held: they were returned"):
        held.view(10, length=20)


def test_view__leaves_no_state(held: Pool) -> None:
    for _ in range(1000):
        held.view(10, length=20)
    assert held.free_chunks == 1
    assert not held._watched
    held.drop(10, length=20)
    assert held.idle


@pytest.mark.compiled
@pytest.mark.long
def test_pool__many_pieces_held_viewed_and_returned_leave_no_state() -> None:
    pool, tokens = pool_of(2 * CHUNK), Tokens()
    pool.open()

    def turn(count: int) -> int:
        """Return the memory of this process, in pages, after `count` pieces."""
        for _ in range(count // 1000):
            frags = []
            for index in range(1000):
                pool.hold(index % CHUNK, length=1)
                give_back = partial(lambda frag, at: pool.drop(at, length=frag.length), at=index % CHUNK)
                frags.append(tokens.issue(1, offset=index, length=1, give_back=give_back))
            pool.view(5, length=3)
            assert tokens.dontneed(ranges(frag.token for frag in frags)) == 1000
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])

    before = turn(20_000)
    assert turn(200_000) - before < 256, "less than 1 MiB"
    pool.close(0)
    assert pool.idle
    assert len(tokens) == 0


def test_pool__keeps_its_region_open_until_released() -> None:
    region = Region(CHUNK)
    pool = Pool(region, chunk_bytes=CHUNK)
    with pytest.raises(RegionError, match="live views"):
        region.close()
    pool.open()
    pool.hold(0, length=CHUNK)
    view = pool.view(0, length=CHUNK)
    pool.release()
    with pytest.raises(PoolError):
        pool.view(0, length=1)
    with pytest.raises(RegionError, match="live views"):
        region.close()
    del view
    region.close()


@pytest.mark.sources  # compiled classes have no weak references
def test_pool__without_references_is_freed_though_a_view_exists() -> None:
    pool = held_chunk()
    view = pool.view(10, length=20)
    gone = weakref.ref(pool)
    del pool
    gc.collect()
    assert gone() is None
    assert len(view) == 20


def test_pool__of_a_read_only_region_bad_flow() -> None:
    with Region.from_fd(REGION.fd, writable=False) as region, pytest.raises(PoolError, match="mapped read-only"):
        Pool(region, chunk_bytes=CHUNK)
