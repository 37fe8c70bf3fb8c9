"""srd.io.rx_buffers against the real pool: each byte of memory is allocated once, in order, and freed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from devmem.pool import Pool
from devmem.region import Region
from srd.io.rx_buffers import SUPER_BYTES, RxBuffers, scratch_bytes

CHUNK_BYTES = 4 * SUPER_BYTES
SLOTS = 3


class HeldBuffers:
    """Receive buffers of three slots over a pool of `chunks`, and the pieces that are held."""

    def __init__(self, *, chunks: int) -> None:
        self.pool_bytes = chunks * CHUNK_BYTES
        self.region = Region(self.pool_bytes + scratch_bytes(SLOTS))
        self.pool = Pool(self.region, size_bytes=self.pool_bytes, chunk_bytes=CHUNK_BYTES)
        self.buffers = RxBuffers(self.region, self.pool, slots=SLOTS)
        self.pieces: list[tuple[int, int]] = []

    def check_free(self, offset: int, size_bytes: int) -> None:
        """The piece is in the pool, in one chunk, and no byte of it is held."""
        assert offset >= 0
        assert offset + size_bytes <= self.pool_bytes
        assert size_bytes == 0 or offset // CHUNK_BYTES == (offset + size_bytes - 1) // CHUNK_BYTES
        for start, length in self.pieces:
            assert offset + size_bytes <= start or start + length <= offset, "allocated while held"

    def hold(self, offset: int, size_bytes: int) -> None:
        self.pool.hold(offset, length=size_bytes)
        self.pieces.append((offset, size_bytes))

    def drop_all(self) -> None:
        for offset, size_bytes in self.pieces:
            self.pool.drop(offset, length=size_bytes)
        self.pieces.clear()


# -- single calls ---------------------------------------------------------------------------------------------------


def test_end_batch__a_slot_leaves_its_chunk_before_a_super_datagram_would_not_fit() -> None:
    held = HeldBuffers(chunks=SLOTS + 2)
    first = held.buffers.cursors[0]
    for _ in range(3):
        held.hold(held.buffers.consume(0, SUPER_BYTES), SUPER_BYTES)
        held.buffers.end_batch()
    assert held.buffers.cursors[0] == first + 3 * SUPER_BYTES  # just one more fits
    held.hold(held.buffers.consume(0, 1), 1)
    assert 0 in held.buffers.end_batch()
    assert held.buffers.cursors[0] // CHUNK_BYTES != first // CHUNK_BYTES
    assert held.pool.free_chunks == 0  # the old chunk is pinned by what is held in it
    held.drop_all()
    assert held.pool.free_chunks == 1


def test_end_batch__a_chunk_without_kept_data_is_free_again() -> None:
    held = HeldBuffers(chunks=SLOTS + 2)
    for _ in range(40):
        held.buffers.consume(0, SUPER_BYTES)
        held.buffers.end_batch()
        assert not held.buffers.is_scratch(0)
        assert held.pool.free_chunks == 1


def test_end_batch__without_a_free_chunk_the_slot_uses_scratch_until_one_is_free() -> None:
    held = HeldBuffers(chunks=SLOTS + 1)
    for _ in range(4):
        held.hold(held.buffers.consume(2, SUPER_BYTES), SUPER_BYTES)
        held.buffers.end_batch()
    assert held.buffers.is_scratch(2)
    assert held.buffers.cursors[2] >= held.pool_bytes
    assert held.buffers.cursors[2] + SUPER_BYTES <= held.region.size_bytes
    assert held.buffers.end_batch() == []
    held.drop_all()
    assert 2 in held.buffers.end_batch()
    assert not held.buffers.is_scratch(2)
    assert held.buffers.cursors[2] < held.pool_bytes


def test_end_batch__after_a_batch_of_whole_trains_slots_follow_each_other_in_one_chunk() -> None:
    held = HeldBuffers(chunks=SLOTS + 2)
    held.buffers.train_bytes = 60_000
    for slot in range(SLOTS):
        held.hold(held.buffers.consume(slot, 60_000), 60_000)
    assert held.buffers.end_batch() == list(range(SLOTS))
    start = held.buffers.cursors[0]
    assert held.buffers.cursors[:3] == [start, start + 60_000, start + 120_000]
    for slot in range(2):
        assert held.buffers.consume(slot, 60_000) == start + slot * 60_000
    held.buffers.end_batch()
    # What is left of the chunk takes one more; the others follow in the next.
    assert held.buffers.cursors[0] == start + 120_000
    assert held.buffers.cursors[1] // CHUNK_BYTES != start // CHUNK_BYTES
    assert held.buffers.cursors[2] == held.buffers.cursors[1] + 60_000


def test_end_batch__a_batch_that_is_less_than_half_full_ends_the_stacking() -> None:
    held = HeldBuffers(chunks=SLOTS + 2)
    held.buffers.train_bytes = 60_000
    for size_bytes, chunks in ((60_000, 1), (29_999, SLOTS)):
        for slot in range(2):
            held.buffers.consume(slot, size_bytes)
        held.buffers.end_batch()
        assert len({cursor // CHUNK_BYTES for cursor in held.buffers.cursors}) == chunks
    held.buffers.consume(0, 60_000)
    held.buffers.end_batch()  # a single slot is no train
    assert len({cursor // CHUNK_BYTES for cursor in held.buffers.cursors}) == SLOTS


# -- sequences of batches -------------------------------------------------------------------------------------------

TRAINS = (60_000, 62_412, 62_304, 33_280)
SIZES = st.one_of(st.integers(1, max(TRAINS)), st.sampled_from([1, 1400, *TRAINS]))
FULL_CHUNK = [(SUPER_BYTES, False)] * (CHUNK_BYTES // SUPER_BYTES)


@dataclass(frozen=True)
class Arrivals:
    """What arrives in a batch: sizes, and whether the core keeps it."""

    train_bytes: int
    slots: dict[int, tuple[int, bool]]
    copies: list[tuple[int, bool]]
    low: bool
    """Whether memory is low, so that what is not kept is reused at once."""
    returned: int
    """Pieces that the application returns after the batch."""


BATCHES = st.lists(
    st.builds(
        Arrivals,
        train_bytes=st.sampled_from(TRAINS),
        slots=st.dictionaries(st.integers(0, SLOTS - 1), st.tuples(SIZES, st.booleans()), max_size=SLOTS),
        copies=st.lists(st.tuples(SIZES, st.booleans()), max_size=5) | st.just(FULL_CHUNK),
        low=st.booleans(),
        returned=st.integers(0, 6),
    ),
    max_size=40,
)


def check_slots(held: HeldBuffers) -> None:
    """What the kernel may write, a train for each slot, is free, and slots do not overlap."""
    spans = sorted((cursor, cursor + held.buffers.train_bytes) for cursor in held.buffers.cursors)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans)), "slots overlap"
    for slot, cursor in enumerate(held.buffers.cursors):
        if not held.buffers.is_scratch(slot):
            held.check_free(cursor, held.buffers.train_bytes)


@given(chunks=st.integers(1, 9), batches=BATCHES)
@settings(max_examples=150)
def test_batches__no_held_memory_is_allocated_and_no_memory_is_lost(chunks: int, batches: list[Arrivals]) -> None:
    """For any arrivals and changes of the layout."""
    held = HeldBuffers(chunks=chunks)
    for batch in batches:
        if batch.train_bytes != held.buffers.train_bytes:
            held.buffers.lay_out(train_bytes=batch.train_bytes)
        check_slots(held)
        kept, unused = land(held, batch)
        for piece in kept:
            held.hold(*piece)
        for offset, size_bytes in unused if batch.low else ():
            held.buffers.rewind(offset, size_bytes=size_bytes)
        held.buffers.end_batch()
        check_slots(held)
        for _ in range(min(batch.returned, len(held.pieces))):
            offset, size_bytes = held.pieces.pop(0)
            held.pool.drop(offset, length=size_bytes)
    held.drop_all()
    held.buffers.close()
    assert held.pool.free_chunks == chunks


def land(held: HeldBuffers, batch: Arrivals) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Let a batch land; return the pieces that are kept, and the others."""
    kept: list[tuple[int, int]] = []
    unused: list[tuple[int, int]] = []
    for slot, (size_bytes, keep) in sorted(batch.slots.items()):  # as the kernel fills them
        landed_bytes = min(size_bytes, batch.train_bytes)
        if not held.buffers.is_scratch(slot):
            offset = held.buffers.consume(slot, landed_bytes)
            held.check_free(offset, landed_bytes)
            (kept if keep else unused).append((offset, landed_bytes))
    for size_bytes, keep in batch.copies:
        copied = held.buffers.allocate_copy(size_bytes)
        if copied is not None:
            held.check_free(copied, size_bytes)
            (kept if keep else unused).append((copied, size_bytes))
    return kept, unused
