"""Where the next payload of each receive slot lands: a chunk of the pool that fills up from its beginning.

A slot keeps its chunk until less than a super-datagram fits, so that what arrives in turn lies in turn. When the pool
has no chunk left, the slot lands in a spare place of its own that is overwritten each time: data is dropped there, and
the sender will come again; control packets are still read.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

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
        self.cursors = region.size_bytes - spare_bytes(slots) + np.arange(slots + 1, dtype=np.int64) * SUPER_BYTES
        self._region = region
        self._pool = pool
        self._spare = self.cursors.copy()
        self._chunks = [-1] * (slots + 1)  # offset of each slot's chunk; -1: it has none
        self._copies = slots
        self.refill()

    @property
    def spare(self) -> npt.NDArray[np.bool_]:
        """Which slots land in their spare place."""
        return np.equal(self.cursors, self._spare)

    def advance(self, used_bytes: npt.NDArray[np.int64]) -> list[int]:
        """Move each slot behind what it received; return the slots whose cursor moved."""
        moved: list[int] = np.flatnonzero(used_bytes).tolist()
        self.cursors[moved] += used_bytes[moved]
        for slot in moved:
            self._ensure_room(slot)
        return moved

    def refill(self) -> list[int]:
        """Give slots without a chunk one; return those that got one."""
        if not self._pool.free_chunks or -1 not in self._chunks:
            return []
        empty = [slot for slot, chunk in enumerate(self._chunks) if chunk < 0]
        for slot in empty:
            self._open(slot)
        return empty

    def _ensure_room(self, slot: int) -> None:
        chunk = self._chunks[slot]
        if chunk >= 0 and self.cursors[slot] + SUPER_BYTES > chunk + self._pool.chunk_bytes:
            self._pool.close(chunk)
            self._open(slot)

    def _open(self, slot: int) -> None:
        opened = self._pool.open()
        self._chunks[slot] = -1 if opened is None else opened
        self.cursors[slot] = self._spare[slot] if opened is None else opened

    def copy(self, payload: bytes) -> int | None:
        """Copy a payload to a place of its own; return its offset, or None when there is no memory."""
        offset, chunk = int(self.cursors[self._copies]), self._chunks[self._copies]
        if chunk < 0 or offset + len(payload) > chunk + self._pool.chunk_bytes:
            return None
        self._region.array[offset : offset + len(payload)] = np.frombuffer(payload, np.uint8)
        self.cursors[self._copies] += len(payload)
        return offset

    def settle_copies(self) -> None:
        """Make room for more copies; call once the pieces kept of the last ones are held."""
        self._ensure_room(self._copies)

    def close(self) -> None:
        """Give the chunks back."""
        for slot, chunk in enumerate(self._chunks):
            if chunk >= 0:
                self._pool.close(chunk)
                self._chunks[slot] = -1
