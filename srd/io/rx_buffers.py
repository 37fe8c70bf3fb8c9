"""Where the next payload of each receive slot lands: chunks of the pool that fill up from their beginning.

Theory of operation.
1. Apart. There is a chunk for each slot, and it keeps it until less than a super-datagram fits: what arrives in a slot
   lies behind what arrived there before, however little that is.
2. Stacked. When batches bring whole series, slots follow each other in one chunk, a series apart, and go on in the next
   chunk: what follows in the slots follows in memory, and a receiver has one run of packets where it had one a slot.
   The end of a series that is not whole stays unused. So a batch that is less than half full ends the stacking.
3. When the pool has no chunk left, a slot lands in a spare place of its own that is overwritten each time: data is
   dropped there, and the sender will come again; control packets are still read. The kernel fills the first slots
   first, so the last have to do without.

A chunk is given back to the pool only in `settle`, when the pieces that were kept of the last batch are held.
"""

from __future__ import annotations

from devmem.pool import Pool
from devmem.region import Region

SUPER_BYTES = 1 << 16
"""More than any super-datagram holds: an IP packet's length is 16 bits."""


def scratch_bytes(slots: int) -> int:
    """Room at the end of a region that `slots` slots need besides the pool."""
    return slots * SUPER_BYTES


class RxBuffers:
    """Cursors of `slots` slots, and a chunk for payloads that have to be copied."""

    def __init__(self, region: Region, pool: Pool, *, slots: int) -> None:
        self.train_bytes = SUPER_BYTES  # payload of a whole series
        self._region = region
        self._pool = pool
        self.scratch = [region.size_bytes - scratch_bytes(slots) + slot * SUPER_BYTES for slot in range(slots)]
        # One a slot, and the last for copies: offset of the chunk (-1: there is none), and up to where it is full.
        self._chunks = [-1] * (slots + 1)
        self._ends = [-1] * (slots + 1)
        self._copies = slots
        self.closed = False
        self._stacked = False
        self._full: list[int] = []  # chunks of copies that filled up since `settle`
        self._moved: list[int] = []  # slots that something landed in since `settle`
        self._moved_bytes = 0
        self._chunk_of = [-1] * slots  # index of the chunk that a slot lies in; -1: its spare place
        self.cursors = self.scratch.copy()
        self.end_batch()

    def is_scratch(self, slot: int) -> bool:
        """Whether the slot has no chunk."""
        return self._chunk_of[slot] < 0

    def consume(self, slot: int, size_bytes: int) -> int:
        """Note that `size_bytes` landed in a slot; return where."""
        offset = self.cursors[slot]
        self.cursors[slot] = self._ends[self._chunk_of[slot]] = offset + size_bytes
        self._moved.append(slot)
        self._moved_bytes += size_bytes
        return offset

    def rewind(self, offset: int, *, size_bytes: int) -> None:
        """Use the place of what landed last in a chunk again: nobody keeps it. Before the next batch."""
        for slot in self._moved:
            chunk = self._chunk_of[slot]
            if self._ends[chunk] == offset + size_bytes:
                self.cursors[slot] = self._ends[chunk] = offset
                return

    def allocate_copy(self, size_bytes: int) -> int | None:
        """Return a place for `size_bytes` (at least 1) that are copied; None when there is no memory."""
        offset, chunk = self._ends[self._copies], self._chunks[self._copies]
        if chunk < 0 or offset + size_bytes > chunk + self._pool.chunk_bytes:
            opened = self._pool.open()
            if opened is None:
                return None
            if chunk >= 0:
                self._full.append(chunk)
            self._chunks[self._copies] = offset = opened
        self._ends[self._copies] = offset + size_bytes
        return offset

    def end_batch(self) -> list[int]:
        """Make room for the next batch; return the slots whose cursor is another than before the last one."""
        moved, self._moved = self._moved, []
        stacked = self._stacked
        if len(moved) > 1:  # a batch of one slot says nothing
            stacked = 2 * self._moved_bytes >= len(moved) * self.train_bytes
        self._moved_bytes = 0
        refilled = self._refill({self._chunk_of[slot] for slot in moved})
        if not refilled and not stacked and not self._stacked:
            return moved  # all others are where they were
        self._stacked = stacked
        return self._lay_out() if moved or refilled else []

    def lay_out(self, *, train_bytes: int) -> None:
        """Give every slot its place for series of another size; what landed in the last batch is held by now."""
        self.train_bytes = train_bytes
        self.end_batch()
        self._lay_out()

    def _refill(self, used: set[int]) -> bool:
        """Close the chunks of `used`, and the copies', that are full, open those that are missing; whether any was."""
        refilled = False
        for offset in self._full:
            self._pool.close(offset)
        self._full.clear()
        for chunk in (self._copies, *used):
            offset = self._chunks[chunk]
            if offset >= 0 and self._ends[chunk] + SUPER_BYTES > offset + self._pool.chunk_bytes:
                self._pool.close(offset)
                self._chunks[chunk], refilled = -1, True
        if -1 in self._chunks:
            # The copies come first: while memory is short, a message that has to be copied must become whole, too.
            for chunk in (self._copies, *range(self._copies)):
                if self._chunks[chunk] < 0 and (opened := self._pool.open()) is not None:
                    self._chunks[chunk] = self._ends[chunk] = opened
                    refilled = True
        return refilled

    def _lay_out(self) -> list[int]:
        """Give every slot its place; return the slots."""
        places = []
        for chunk in range(self._copies):
            if (start := self._chunks[chunk]) >= 0:
                last = start + self._pool.chunk_bytes - SUPER_BYTES if self._stacked else self._ends[chunk]
                places += [(chunk, at) for at in range(self._ends[chunk], last + 1, self.train_bytes)]
        slots = range(self._copies)
        places += [(-1, self.scratch[slot]) for slot in slots[len(places) :]]
        for slot in slots:
            self._chunk_of[slot], self.cursors[slot] = places[slot]
        return list(slots)

    def close(self) -> None:
        """Give the chunks back; nothing lands any more."""
        self.closed = True
        for offset in (*self._full, *self._chunks):
            if offset >= 0:
                self._pool.close(offset)
        self._full.clear()
        self._chunks = [-1] * len(self._chunks)
