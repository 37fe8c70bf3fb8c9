"""Moves messages that nobody has received together, when the region that they lie in is short of memory.

A held byte pins its chunk (`devmem.pool`), and all peers share the chunks. So a peer whose messages are not received
could pin the whole region with a few bytes: each in another chunk, which others' messages have filled and left.

1. What waits is moved out of each chunk that nothing else holds, and that it fills to at most a half. So what a peer's
   waiting messages pin is in proportion to their bytes, which its credit bounds.
2. That is tried when the region is short of memory, and a quarter of what was free at the last try is gone: looking at
   all that waits takes time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Protocol

from srd.io.rx_memory import RxMemory
from srd.proto.events import Extent

GONE = 0.25
"""Fraction of what was free: from fifty chunks, the usual reserve, to nothing there are 13 tries."""


class Waiting(Protocol):
    """A message, or several that arrived together, in the memory where they landed."""

    @property
    def extents(self) -> tuple[Extent, ...]:
        """Where they lie."""

    def move(self, extents: tuple[Extent, ...]) -> None:
        """Note where they lie now."""


class Compaction:
    """Of one region."""

    __slots__ = ("_most_bytes", "_queue", "_waiting")

    def __init__(self, queue: RxMemory, *, waiting: Callable[[], Iterable[Waiting]]) -> None:
        """`waiting`: all that nobody has received, in this region and others."""
        self._queue = queue
        self._waiting = waiting
        self._most_bytes = math.inf  # that were free since the last try

    def on_low(self) -> None:
        """Try it, if it is time to; the region is short of memory."""
        pool = self._queue.pool
        if (free_bytes := pool.free_bytes) > (1 - GONE) * self._most_bytes:
            self._most_bytes = max(self._most_bytes, free_bytes)
            return
        waiting = [(each, [extent for extent in each.extents if self._queue.has(extent)]) for each in self._waiting()]
        chunks = self._to_empty(extent for _, here in waiting for extent in here)
        for each, here in waiting:
            if any(not chunks.isdisjoint(self._queue.chunks(extent)) for extent in here):
                each.move(tuple(self._queue.move(extent) if extent in here else extent for extent in each.extents))
        self._most_bytes = pool.free_bytes

    def _to_empty(self, extents: Iterable[Extent]) -> set[int]:
        """Return the chunks that only these extents hold, and little of them."""
        held: dict[int, tuple[int, int]] = {}  # by chunk: extents, and their bytes
        for extent in extents:
            for chunk in self._queue.chunks(extent):
                count, size_bytes = held.get(chunk, (0, 0))
                held[chunk] = count + 1, size_bytes + extent.length
        pool = self._queue.pool
        return {
            chunk
            for chunk, (count, size_bytes) in held.items()
            if 2 * size_bytes <= pool.chunk_bytes and pool.is_held_by(chunk, fragments=count)
        }
