"""Where the next payload of each receive slot lands: chunks of the pool that fill up from their beginning.

Theory of operation.
1. Separate layout. Each slot has a chunk and keeps it until less than a super-datagram fits. The payload that arrives
   in a slot lies directly behind the payload that arrived there before, however short that was.
2. Stacked layout. When batches bring whole segment trains, slots follow each other in one chunk, a train apart, and
   continue in the next chunk. Consecutive slots then are consecutive in memory, and the receiver gets one received
   burst instead of one per slot. The room behind a train that is not whole stays unused, so a batch that is less than
   half full ends the stacked layout.
3. When the pool has no chunk left, a slot lands in a scratch buffer of its own that is overwritten each time. Data that
   lands there is dropped and the sender retransmits it; control packets are still read. The kernel fills the first
   slots first, so the last slots get the scratch buffers.

A chunk is returned to the pool only in `end_batch`, when the extents that were kept of the last batch are held.
"""

from __future__ import annotations

from typing import Final

from devmem.pool import Pool
from devmem.region import Region

SUPER_BYTES: Final = 1 << 16
"""Upper bound of a super-datagram: an IP packet's length field has 16 bits."""


def scratch_bytes(slots: int) -> int:
    """Return the size of the scratch buffers of `slots` slots, which lie behind the pool at the end of the region."""
    return slots * SUPER_BYTES


class RxBuffers:
    """Cursors of `slots` slots, and a chunk for payloads that have to be copied."""

    def __init__(self, region: Region, pool: Pool, *, slots: int) -> None:
        self.train_bytes = SUPER_BYTES  # payload of a whole train
        self._region = region
        self._pool = pool
        self.scratch = [region.size_bytes - scratch_bytes(slots) + slot * SUPER_BYTES for slot in range(slots)]
        # One per slot, and the last for copies: offset of the chunk (-1: there is none), and the end of its used part.
        self._chunks = [-1] * (slots + 1)
        self._ends = [-1] * (slots + 1)
        self._copies = slots
        self.closed = False
        self._stacked = False
        self._full: list[int] = []  # chunks of copies that filled up since `end_batch`
        self._moved: list[int] = []  # slots that something landed in since `end_batch`
        self._moved_bytes = 0
        self._chunk_of = [-1] * slots  # index of the chunk that a slot lies in; -1: its scratch buffer
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
        """Reuse the memory of what landed last in a chunk, or was copied there, and is not kept; before the next batch.

        Nothing happens if it landed elsewhere: a copy may end where the chunk of a slot begins.
        """
        for slot in self._moved:
            chunk = self._chunk_of[slot]
            if self._chunks[chunk] <= offset and self._ends[chunk] == offset + size_bytes:
                self.cursors[slot] = self._ends[chunk] = offset
                return
        chunk = self._copies
        if 0 <= self._chunks[chunk] <= offset and self._ends[chunk] == offset + size_bytes:
            self._ends[chunk] = offset

    def trim_copy(self, end: int) -> None:
        """Reuse the memory behind `end`, in the last buffer for a copy."""
        self._ends[self._copies] = end

    def allocate_copy(self, size_bytes: int) -> int | None:
        """Return the offset of a buffer for a copy of `size_bytes` (at least 1); None when there is no memory."""
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
        """Prepare the buffers for the next batch; return the slots whose cursor has changed since the last one."""
        moved, self._moved = self._moved, []
        stacked = self._stacked
        if len(moved) > 1:  # a batch of one slot is no evidence
            stacked = 2 * self._moved_bytes >= len(moved) * self.train_bytes
        self._moved_bytes = 0
        refilled = self._refill({self._chunk_of[slot] for slot in moved})
        if not refilled and not stacked and not self._stacked:
            return moved  # all others are unchanged
        self._stacked = stacked
        return self._lay_out() if moved or refilled else []

    def lay_out(self, *, train_bytes: int) -> None:
        """Lay all slots out for trains of another size. What was kept of the last batch must be held."""
        self.train_bytes = train_bytes
        self.end_batch()
        self._lay_out()

    def _refill(self, used: set[int]) -> bool:
        """Close full chunks (of `used`, and the copies'), open missing ones; return whether anything changed."""
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
            # The copies' chunk comes first: a message that has to be copied must complete even while memory is short.
            for chunk in (self._copies, *range(self._copies)):
                if self._chunks[chunk] < 0 and (opened := self._pool.open()) is not None:
                    self._chunks[chunk] = self._ends[chunk] = opened
                    refilled = True
        return refilled

    def _lay_out(self) -> list[int]:
        """Assign a chunk and cursor to every slot; return the slots."""
        cursors, chunk_of = list[int](), list[int]()
        slots, train_bytes = self._copies, self.train_bytes
        for chunk in range(slots):
            if (start := self._chunks[chunk]) < 0:
                continue
            at, count = self._ends[chunk], 1
            if self._stacked:
                room_bytes = start + self._pool.chunk_bytes - SUPER_BYTES - at
                count = min(room_bytes // train_bytes + 1, slots - len(cursors))
            cursors += range(at, at + count * train_bytes, train_bytes)
            chunk_of += [chunk] * count
            if len(cursors) == slots:
                break
        missing = slots - len(cursors)
        self.cursors[:] = cursors + self.scratch[slots - missing :]
        self._chunk_of[:] = chunk_of + [-1] * missing
        return list(range(slots))

    def close(self) -> None:
        """Return the chunks to the pool; nothing lands any more."""
        self.closed = True
        for offset in (*self._full, *self._chunks):
            if offset >= 0:
                self._pool.close(offset)
        self._full.clear()
        self._chunks = [-1] * len(self._chunks)
