"""Send memory: a region in which each request has a piece until it completes."""

from __future__ import annotations

from random import Random

import numpy as np

from devmem.region import Region
from scripts.benches.torture.pattern import POISON, Bytes, fill

_GAP_BYTES = 64
_POISONED_BYTES = 64 << 10
"""Bytes overwritten at each end of a returned piece."""


class Arena:
    """`allocate` a piece and `free` it. A freed piece is overwritten, which detects data that is sent too late."""

    def __init__(self, size_bytes: int, *, seed: int) -> None:
        self.region = Region(size_bytes, name="torture-arena")
        self._seed = seed
        self._allocated: list[tuple[int, int]] = []

    def allocate(self, length: int, *, rng: Random) -> int | None:
        """Return the offset of a free piece, at any alignment; None if there is none."""
        at = rng.randrange(_GAP_BYTES)
        for index, (first, end) in enumerate(self._allocated):
            if at + length <= first:
                self._allocated.insert(index, (at, at + length))
                return at
            at = end + rng.randrange(_GAP_BYTES)
        if at + length > self.region.size_bytes:
            return None
        self._allocated.append((at, at + length))
        return at

    def bytes(self, offset: int, *, length: int) -> Bytes:
        return np.asarray(self.region.array)[offset : offset + length]

    def free(self, offset: int, *, length: int) -> None:
        piece = self.bytes(offset, length=length)
        for part in (piece[:_POISONED_BYTES], piece[_POISONED_BYTES:][-_POISONED_BYTES:]):
            fill(part, self._seed, owner=POISON, message=offset)
        self._allocated.remove((offset, offset + length))

    def close(self) -> None:
        self.region.close()
