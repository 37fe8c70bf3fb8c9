"""srd.io.landing: memory is handed out once, in turn, and given back; against the real pool."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from devmem.pool import Pool
from devmem.region import Region
from srd.io.landing import SUPER_BYTES, Landing, spare_bytes

CHUNK_BYTES = 4 * SUPER_BYTES
SLOTS = 3


class Room:
    """A landing of three slots over a pool of `chunks`, and what is held of it."""

    def __init__(self, *, chunks: int) -> None:
        self.pool_bytes = chunks * CHUNK_BYTES
        self.region = Region(self.pool_bytes + spare_bytes(SLOTS))
        self.pool = Pool(self.region, size_bytes=self.pool_bytes, chunk_bytes=CHUNK_BYTES)
        self.landing = Landing(self.region, self.pool, slots=SLOTS)
        self.held: list[tuple[int, int]] = []

    def check_free(self, offset: int, size_bytes: int) -> None:
        """The piece lies in the pool, in one chunk, and no one holds any of it."""
        assert offset >= 0
        assert offset + size_bytes <= self.pool_bytes
        assert size_bytes == 0 or offset // CHUNK_BYTES == (offset + size_bytes - 1) // CHUNK_BYTES
        for start, length in self.held:
            assert offset + size_bytes <= start or start + length <= offset, "handed out while held"

    def hold(self, offset: int, size_bytes: int) -> None:
        self.pool.hold(offset, length=size_bytes)
        self.held.append((offset, size_bytes))

    def drop_all(self) -> None:
        for offset, size_bytes in self.held:
            self.pool.drop(offset, length=size_bytes)
        self.held.clear()


# -- what each call does --------------------------------------------------------------------------------------------


def test_init__each_slot_has_a_chunk_of_its_own() -> None:
    room = Room(chunks=SLOTS + 3)
    assert room.pool.free_chunks == 2  # the slots', and the copies'
    assert len({cursor // CHUNK_BYTES for cursor in room.landing.cursors}) == SLOTS
    assert not any(room.landing.is_spare(slot) for slot in range(SLOTS))


def test_take__what_arrives_in_turn_lies_in_turn() -> None:
    room = Room(chunks=SLOTS + 1)
    start = room.landing.cursors[1]
    assert room.landing.take(1, 1000) == start
    assert room.landing.settle() == [1]
    assert room.landing.cursors[1] == start + 1000
    assert room.landing.take(1, 1) == start + 1000


def test_settle__a_slot_leaves_its_chunk_before_a_super_datagram_would_not_fit() -> None:
    room = Room(chunks=SLOTS + 2)
    first = room.landing.cursors[0]
    for _ in range(3):
        room.hold(room.landing.take(0, SUPER_BYTES), SUPER_BYTES)
        room.landing.settle()
    assert room.landing.cursors[0] == first + 3 * SUPER_BYTES  # just one more fits
    room.hold(room.landing.take(0, 1), 1)
    assert 0 in room.landing.settle()
    assert room.landing.cursors[0] // CHUNK_BYTES != first // CHUNK_BYTES
    assert room.pool.free_chunks == 0  # the old chunk is pinned by what is held in it
    room.drop_all()
    assert room.pool.free_chunks == 1


def test_settle__a_chunk_that_nothing_was_kept_of_is_free_again() -> None:
    room = Room(chunks=SLOTS + 2)
    for _ in range(40):
        room.landing.take(0, SUPER_BYTES)
        room.landing.settle()
        assert not room.landing.is_spare(0)
        assert room.pool.free_chunks == 1


def test_settle__without_a_chunk_left_the_slot_lands_in_the_spare_room_until_one_is_free() -> None:
    room = Room(chunks=SLOTS + 1)
    for _ in range(4):
        room.hold(room.landing.take(2, SUPER_BYTES), SUPER_BYTES)
        room.landing.settle()
    assert room.landing.is_spare(2)
    assert room.landing.cursors[2] >= room.pool_bytes
    assert room.landing.cursors[2] + SUPER_BYTES <= room.region.size_bytes
    assert room.landing.settle() == []
    room.drop_all()
    assert 2 in room.landing.settle()
    assert not room.landing.is_spare(2)
    assert room.landing.cursors[2] < room.pool_bytes


def test_settle__after_a_batch_of_whole_series_slots_follow_each_other_in_one_chunk() -> None:
    room = Room(chunks=SLOTS + 2)
    room.landing.series_bytes = 60_000
    for slot in range(SLOTS):
        room.hold(room.landing.take(slot, 60_000), 60_000)
    assert room.landing.settle() == list(range(SLOTS))
    start = room.landing.cursors[0]
    assert room.landing.cursors[:3] == [start, start + 60_000, start + 120_000]
    for slot in range(2):
        assert room.landing.take(slot, 60_000) == start + slot * 60_000
    room.landing.settle()
    # What is left of the chunk takes one more; the others follow in the next.
    assert room.landing.cursors[0] == start + 120_000
    assert room.landing.cursors[1] // CHUNK_BYTES != start // CHUNK_BYTES
    assert room.landing.cursors[2] == room.landing.cursors[1] + 60_000


def test_settle__a_batch_that_is_less_than_half_full_ends_the_stacking() -> None:
    room = Room(chunks=SLOTS + 2)
    room.landing.series_bytes = 60_000
    for size_bytes, chunks in ((60_000, 1), (29_999, SLOTS)):
        for slot in range(2):
            room.landing.take(slot, size_bytes)
        room.landing.settle()
        assert len({cursor // CHUNK_BYTES for cursor in room.landing.cursors}) == chunks
    room.landing.take(0, 60_000)
    room.landing.settle()  # a single slot says nothing
    assert len({cursor // CHUNK_BYTES for cursor in room.landing.cursors}) == SLOTS


def test_rewind__what_landed_last_is_landed_on_again() -> None:
    room = Room(chunks=SLOTS + 2)
    start = room.landing.take(1, 1000)
    last = room.landing.take(1, 500)
    room.landing.rewind(start, size_bytes=1000)  # not the last
    assert room.landing.cursors[1] == last + 500
    room.landing.rewind(last, size_bytes=500)
    room.landing.settle()
    assert room.landing.cursors[1] == last


def test_init__a_pool_that_is_too_small_leaves_slots_spare_each_at_a_place_of_its_own() -> None:
    room = Room(chunks=1)
    assert [room.landing.is_spare(slot) for slot in range(SLOTS)] == [False, True, True]
    cursors = sorted(room.landing.cursors[1:])
    assert all(later - earlier >= SUPER_BYTES for earlier, later in pairwise(cursors))
    assert cursors[-1] + SUPER_BYTES <= room.region.size_bytes
    assert room.landing.copy(b"x") is None


def test_copy__the_bytes_are_where_it_says() -> None:
    room = Room(chunks=SLOTS + 1)
    offsets = [room.landing.copy(payload) for payload in (b"first", b"", b"second")]
    assert None not in offsets
    first, _, second = (offset for offset in offsets if offset is not None)
    assert room.region.array[first : first + 5].tobytes() == b"first"
    assert room.region.array[second : second + 6].tobytes() == b"second"
    assert room.landing.settle() == []  # no slot of the receive queue has moved


def test_copy__more_than_the_chunk_holds_is_refused_until_the_next_batch() -> None:
    room = Room(chunks=SLOTS + 2)
    kept = []
    while (offset := room.landing.copy(bytes(60_000))) is not None:
        room.check_free(offset, 60_000)
        room.hold(offset, 60_000)
        kept.append(offset)
    assert len(kept) == CHUNK_BYTES // 60_000
    room.landing.settle()
    again = room.landing.copy(bytes(60_000))
    assert again is not None
    room.check_free(again, 60_000)


def test_settle__several_copies_of_a_full_chunk_close_it_once() -> None:
    """Closing it twice would give a chunk back that is somebody's: the pool's last, chunk -1."""
    room = Room(chunks=SLOTS + 2)
    last = room.pool.open()
    assert last == room.pool_bytes - CHUNK_BYTES
    for _ in range(4):
        assert room.landing.copy(bytes(60_000)) is not None
    room.landing.settle()
    room.pool.hold(last, length=CHUNK_BYTES)
    room.pool.close(last)
    room.pool.drop(last, length=CHUNK_BYTES)  # would raise PoolError had settle taken our hold


def test_copy__an_empty_piece_at_the_very_end_stays_in_its_chunk() -> None:
    room = Room(chunks=SLOTS + 2)
    for _ in range(4):
        assert room.landing.copy(bytes(SUPER_BYTES)) is not None
    empty = room.landing.copy(b"")
    free = room.pool.free_chunks
    if empty is not None:
        room.pool.hold(empty, length=0)
        room.pool.drop(empty, length=0)
    assert room.pool.free_chunks == free, "the free chunk after it is listed twice now"


def test_close__gives_every_chunk_back() -> None:
    room = Room(chunks=SLOTS + 4)
    room.landing.take(0, SUPER_BYTES)
    room.landing.close()
    assert room.pool.free_chunks == SLOTS + 4
    room.landing.close()
    assert room.pool.free_chunks == SLOTS + 4


# -- the whole, against the pool ------------------------------------------------------------------------------------

SERIES_BYTES = 60_000
SIZES = st.one_of(st.integers(1, SERIES_BYTES), st.sampled_from([1, 1400, SERIES_BYTES - 1, SERIES_BYTES]))
BATCHES = st.lists(
    st.tuples(
        st.dictionaries(st.integers(0, SLOTS - 1), st.tuples(SIZES, st.booleans()), max_size=SLOTS),
        st.lists(st.tuples(SIZES, st.booleans()), max_size=5),
        st.integers(0, 6),
    ),
    max_size=40,
)


@given(chunks=st.integers(1, 9), batches=BATCHES)
@settings(deadline=None, max_examples=150)
def test_batches__nothing_held_is_ever_handed_out_again_and_nothing_is_lost(
    chunks: int, batches: list[tuple[dict[int, tuple[int, bool]], list[tuple[int, bool]], int]]
) -> None:
    room = Room(chunks=chunks)
    room.landing.series_bytes = SERIES_BYTES
    for slots, copies, returned in batches:
        kept = []
        for slot, (size_bytes, keep) in sorted(slots.items()):  # as the kernel fills them
            if not room.landing.is_spare(slot):
                offset = room.landing.take(slot, size_bytes)
                room.check_free(offset, size_bytes)
                kept += [(offset, size_bytes)] * keep
        for size_bytes, keep in copies:
            copied = room.landing.copy(bytes(size_bytes))
            if copied is not None:
                room.check_free(copied, size_bytes)
                kept += [(copied, size_bytes)] * keep
        for piece in kept:
            room.hold(*piece)
        room.landing.settle()
        for _ in range(min(returned, len(room.held))):
            offset, size_bytes = room.held.pop(0)
            room.pool.drop(offset, length=size_bytes)
    room.drop_all()
    room.landing.close()
    assert room.pool.free_chunks == chunks
