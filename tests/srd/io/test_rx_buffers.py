"""srd.io.rx_buffers: memory is handed out once, in turn, and given back; against the real pool."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from devmem.pool import Pool
from devmem.region import Region
from srd.io.rx_buffers import SUPER_BYTES, RxBuffers, scratch_bytes

CHUNK_BYTES = 4 * SUPER_BYTES
SLOTS = 3


class Room:
    """A landing of three slots over a pool of `chunks`, and what is held of it."""

    def __init__(self, *, chunks: int) -> None:
        self.pool_bytes = chunks * CHUNK_BYTES
        self.region = Region(self.pool_bytes + scratch_bytes(SLOTS))
        self.pool = Pool(self.region, size_bytes=self.pool_bytes, chunk_bytes=CHUNK_BYTES)
        self.landing = RxBuffers(self.region, self.pool, slots=SLOTS)
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
    assert not any(room.landing.is_scratch(slot) for slot in range(SLOTS))


def test_consume__what_arrives_in_turn_lies_in_turn() -> None:
    room = Room(chunks=SLOTS + 1)
    start = room.landing.cursors[1]
    assert room.landing.consume(1, 1000) == start
    assert room.landing.end_batch() == [1]
    assert room.landing.cursors[1] == start + 1000
    assert room.landing.consume(1, 1) == start + 1000


def test_end_batch__a_slot_leaves_its_chunk_before_a_super_datagram_would_not_fit() -> None:
    room = Room(chunks=SLOTS + 2)
    first = room.landing.cursors[0]
    for _ in range(3):
        room.hold(room.landing.consume(0, SUPER_BYTES), SUPER_BYTES)
        room.landing.end_batch()
    assert room.landing.cursors[0] == first + 3 * SUPER_BYTES  # just one more fits
    room.hold(room.landing.consume(0, 1), 1)
    assert 0 in room.landing.end_batch()
    assert room.landing.cursors[0] // CHUNK_BYTES != first // CHUNK_BYTES
    assert room.pool.free_chunks == 0  # the old chunk is pinned by what is held in it
    room.drop_all()
    assert room.pool.free_chunks == 1


def test_end_batch__a_chunk_that_nothing_was_kept_of_is_free_again() -> None:
    room = Room(chunks=SLOTS + 2)
    for _ in range(40):
        room.landing.consume(0, SUPER_BYTES)
        room.landing.end_batch()
        assert not room.landing.is_scratch(0)
        assert room.pool.free_chunks == 1


def test_end_batch__without_a_chunk_left_the_slot_lands_in_the_spare_room_until_one_is_free() -> None:
    room = Room(chunks=SLOTS + 1)
    for _ in range(4):
        room.hold(room.landing.consume(2, SUPER_BYTES), SUPER_BYTES)
        room.landing.end_batch()
    assert room.landing.is_scratch(2)
    assert room.landing.cursors[2] >= room.pool_bytes
    assert room.landing.cursors[2] + SUPER_BYTES <= room.region.size_bytes
    assert room.landing.end_batch() == []
    room.drop_all()
    assert 2 in room.landing.end_batch()
    assert not room.landing.is_scratch(2)
    assert room.landing.cursors[2] < room.pool_bytes


def test_end_batch__after_a_batch_of_whole_trains_slots_follow_each_other_in_one_chunk() -> None:
    room = Room(chunks=SLOTS + 2)
    room.landing.train_bytes = 60_000
    for slot in range(SLOTS):
        room.hold(room.landing.consume(slot, 60_000), 60_000)
    assert room.landing.end_batch() == list(range(SLOTS))
    start = room.landing.cursors[0]
    assert room.landing.cursors[:3] == [start, start + 60_000, start + 120_000]
    for slot in range(2):
        assert room.landing.consume(slot, 60_000) == start + slot * 60_000
    room.landing.end_batch()
    # What is left of the chunk takes one more; the others follow in the next.
    assert room.landing.cursors[0] == start + 120_000
    assert room.landing.cursors[1] // CHUNK_BYTES != start // CHUNK_BYTES
    assert room.landing.cursors[2] == room.landing.cursors[1] + 60_000


def test_end_batch__a_batch_that_is_less_than_half_full_ends_the_stacking() -> None:
    room = Room(chunks=SLOTS + 2)
    room.landing.train_bytes = 60_000
    for size_bytes, chunks in ((60_000, 1), (29_999, SLOTS)):
        for slot in range(2):
            room.landing.consume(slot, size_bytes)
        room.landing.end_batch()
        assert len({cursor // CHUNK_BYTES for cursor in room.landing.cursors}) == chunks
    room.landing.consume(0, 60_000)
    room.landing.end_batch()  # a single slot is no train
    assert len({cursor // CHUNK_BYTES for cursor in room.landing.cursors}) == SLOTS


def test_rewind__what_landed_last_is_landed_on_again() -> None:
    room = Room(chunks=SLOTS + 2)
    start = room.landing.consume(1, 1000)
    last = room.landing.consume(1, 500)
    room.landing.rewind(start, size_bytes=1000)  # not the last
    assert room.landing.cursors[1] == last + 500
    room.landing.rewind(last, size_bytes=500)
    room.landing.end_batch()
    assert room.landing.cursors[1] == last


def test_init__a_pool_that_is_too_small_leaves_slots_spare_each_at_a_place_of_its_own() -> None:
    room = Room(chunks=2)  # the copies have the other
    assert [room.landing.is_scratch(slot) for slot in range(SLOTS)] == [False, True, True]
    cursors = sorted(room.landing.cursors[1:])
    assert all(later - earlier >= SUPER_BYTES for earlier, later in pairwise(cursors))
    assert cursors[-1] + SUPER_BYTES <= room.region.size_bytes


def test_allocate_copy__places_follow_each_other_and_move_no_slot() -> None:
    room = Room(chunks=SLOTS + 1)
    first, second = room.landing.allocate_copy(5), room.landing.allocate_copy(6)
    assert first is not None
    assert second == first + 5
    assert room.landing.end_batch() == []


def test_allocate_copy__goes_on_in_another_chunk_and_is_refused_without_one() -> None:
    room = Room(chunks=SLOTS + 2)
    kept = []
    while (offset := room.landing.allocate_copy(60_000)) is not None:
        room.check_free(offset, 60_000)
        room.hold(offset, 60_000)
        kept.append(offset)
    assert len(kept) == 2 * (CHUNK_BYTES // 60_000)
    room.drop_all()
    room.landing.end_batch()
    assert room.landing.allocate_copy(60_000) is not None


def test_refill__copies_have_a_chunk_before_the_slots() -> None:
    """While memory is short, a message that has to be copied must become whole, too."""
    room = Room(chunks=1)
    assert room.landing.allocate_copy(1) is not None
    assert all(room.landing.is_scratch(slot) for slot in range(SLOTS))


def test_end_batch__several_copies_of_a_full_chunk_close_it_once() -> None:
    """Closing it twice would give a chunk back that is somebody's: the pool's last, chunk -1."""
    room = Room(chunks=SLOTS + 2)
    last = room.pool.open()
    assert last == room.pool_bytes - CHUNK_BYTES
    for _ in range(4):
        assert room.landing.allocate_copy(60_000) is not None
    room.landing.end_batch()
    room.pool.hold(last, length=CHUNK_BYTES)
    room.pool.close(last)
    room.pool.drop(last, length=CHUNK_BYTES)  # would raise PoolError had settle taken our hold


def test_close__gives_every_chunk_back() -> None:
    room = Room(chunks=SLOTS + 4)
    room.landing.consume(0, SUPER_BYTES)
    room.landing.close()
    assert room.pool.free_chunks == SLOTS + 4
    room.landing.close()
    assert room.pool.free_chunks == SLOTS + 4


# -- the whole, against the pool ------------------------------------------------------------------------------------

TRAINS = (60_000, 62_412, 62_304, 33_280)
SIZES = st.one_of(st.integers(1, max(TRAINS)), st.sampled_from([1, 1400, *TRAINS]))
BATCHES = st.lists(
    st.tuples(
        st.sampled_from(TRAINS),
        st.dictionaries(st.integers(0, SLOTS - 1), st.tuples(SIZES, st.booleans()), max_size=SLOTS),
        st.lists(st.tuples(SIZES, st.booleans()), max_size=5),
        st.integers(0, 6),
    ),
    max_size=40,
)


def check_slots(room: Room) -> None:
    """All that the kernel may write, a train a slot, is nobody's; so no two slots have a byte in common."""
    places = sorted((cursor, cursor + room.landing.train_bytes) for cursor in room.landing.cursors)
    assert all(end <= start for (_, end), (start, _) in pairwise(places)), "slots overlap"
    for slot, cursor in enumerate(room.landing.cursors):
        if not room.landing.is_scratch(slot):
            room.check_free(cursor, room.landing.train_bytes)


@given(chunks=st.integers(1, 9), batches=BATCHES)
@settings(max_examples=150)
def test_batches__nothing_held_is_ever_handed_out_again_and_nothing_is_lost(
    chunks: int, batches: list[tuple[int, dict[int, tuple[int, bool]], list[tuple[int, bool]], int]]
) -> None:
    """Whatever arrives, and however often the layout changes."""
    room = Room(chunks=chunks)
    for series_bytes, slots, copies, returned in batches:
        if series_bytes != room.landing.train_bytes:
            room.landing.lay_out(train_bytes=series_bytes)
        check_slots(room)
        kept = []
        for slot, (size_bytes, keep) in sorted(slots.items()):  # as the kernel fills them
            landed_bytes = min(size_bytes, series_bytes)
            if not room.landing.is_scratch(slot):
                offset = room.landing.consume(slot, landed_bytes)
                room.check_free(offset, landed_bytes)
                kept += [(offset, landed_bytes)] * keep
        for size_bytes, keep in copies:
            copied = room.landing.allocate_copy(size_bytes)
            if copied is not None:
                room.check_free(copied, size_bytes)
                kept += [(copied, size_bytes)] * keep
        for piece in kept:
            room.hold(*piece)
        room.landing.end_batch()
        check_slots(room)
        for _ in range(min(returned, len(room.held))):
            offset, size_bytes = room.held.pop(0)
            room.pool.drop(offset, length=size_bytes)
    room.drop_all()
    room.landing.close()
    assert room.pool.free_chunks == chunks
