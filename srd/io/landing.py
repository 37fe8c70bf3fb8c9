"""Where the next payload of each receive slot lands: a chunk of the pool that fills up from its beginning.

A slot keeps its chunk until less than a super-datagram fits, so that what arrives in turn lies in turn. When the pool
has no chunk left, the slot lands in a spare place of its own that is overwritten each time: data is dropped there, and
the sender will come again; control packets are still read.

A chunk is given back to the pool only in `settle`, when the pieces that were kept of the last batch are held.
"""

from __future__ import annotations

import numpy as np

from devmem.pool import Pool
from devmem.region import Region

SUPER_BYTES = 1 << 16
"""More than any super-datagram holds: an IP packet's length is 16 bits."""


def spare_bytes(slots: int) -> int:
    """Room at the end of a region that `slots` slots need besides the pool."""
    return (slots + 1) * SUPER_BYTES


class Landing:
    """Cursors of `slots` slots, and of one more for payloads that have to be copied."""

    def __init__(self, region: Region, pool: Pool, *, slots: int) -> None:
        self._region = region
        self._pool = pool
        self._spare = [region.size_bytes - spare_bytes(slots) + slot * SUPER_BYTES for slot in range(slots + 1)]
        self._chunks = [-1] * (slots + 1)  # offset of each slot's chunk; -1: it has none
        self._copies = slots
        self._moved: list[int] = []
        self._stolen: list[int] = []
        self.closed = False
        self.cursors = self._spare.copy()
        self.settle()

    def is_spare(self, slot: int) -> bool:
        """Whether the slot has no chunk."""
        return self._chunks[slot] < 0

    def take(self, slot: int, size_bytes: int) -> int:
        """Note that `size_bytes` landed in a slot; return where."""
        offset = self.cursors[slot]
        self.cursors[slot] = offset + size_bytes
        self._moved.append(slot)
        return offset

    def rewind(self, offset: int, *, size_bytes: int) -> None:
        """Use the place of what landed last in a slot again: nobody keeps it. Before the next batch."""
        for slot in self._moved:
            if self.cursors[slot] == offset + size_bytes:
                self.cursors[slot] = offset
                return

    def copy(self, payload: bytes) -> int | None:
        """Copy a payload to a place of its own; return its offset, or None when there is no memory."""
        offset, chunk = self.cursors[self._copies], self._chunks[self._copies]
        end = chunk + self._pool.chunk_bytes
        if chunk < 0 or offset == end or offset + len(payload) > end:
            return None  # nothing may lie at the end of a chunk, not even nothing: that is the next one's
        self._region.array[offset : offset + len(payload)] = np.frombuffer(payload, np.uint8)
        return self.take(self._copies, len(payload))

    def settle(self) -> list[int]:
        """Make room for the next batch; return the slots (not the copies') whose cursor is another now."""
        moved, self._moved = list(dict.fromkeys(self._moved)), []
        for slot in moved:
            chunk = self._chunks[slot]
            if self.cursors[slot] + SUPER_BYTES > chunk + self._pool.chunk_bytes:
                self._pool.close(chunk)
                self._chunks[slot] = -1
        if -1 in self._chunks and self._pool.free_chunks:
            moved += [slot for slot, chunk in enumerate(self._chunks) if chunk < 0 and slot not in moved]
        for slot in moved:
            if self._chunks[slot] < 0:
                self._open(slot)
        moved += self._stolen
        self._stolen.clear()
        return [slot for slot in moved if slot != self._copies]

    def _open(self, slot: int) -> None:
        opened = self._pool.open()
        if opened is not None:
            self._chunks[slot] = self.cursors[slot] = opened
            return
        self._chunks[slot], self.cursors[slot] = -1, self._spare[slot]
        # The kernel fills the first slots first: a later one that has a chunk gives it up.
        for later in range(self._copies - 1, slot, -1):
            if self._chunks[later] >= 0:
                self._chunks[slot], self.cursors[slot] = self._chunks[later], self.cursors[later]
                self._chunks[later], self.cursors[later] = -1, self._spare[later]
                self._stolen.append(later)
                return

    def close(self) -> None:
        """Give the chunks back; nothing lands any more."""
        self.closed = True
        for slot, chunk in enumerate(self._chunks):
            if chunk >= 0:
                self._pool.close(chunk)
                self._chunks[slot] = -1
