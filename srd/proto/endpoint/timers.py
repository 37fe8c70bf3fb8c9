"""Deadlines of many peers: the earliest is found without examining the others, however many there are.

A heap with lazy deletion: a key has one deadline, in a dictionary; heap entries that differ from it are stale. Moving a
deadline later costs nothing until the old one is reached.
"""

from __future__ import annotations

import heapq


class Timers:
    """`arm` a key; `next_at` is the earliest deadline; `expired` removes and returns the keys that are due."""

    def __init__(self) -> None:
        self._deadlines: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []
        self._queued: dict[int, float] = {}  # earliest heap entry of each key

    def arm(self, key: int, *, at: float | None) -> None:
        """Set the deadline of `key`; None removes it."""
        if at is None:
            self._deadlines.pop(key, None)
            return
        self._deadlines[key] = at
        queued = self._queued.get(key)
        if queued is None or at < queued:
            heapq.heappush(self._heap, (at, key))
            self._queued[key] = at

    def next_at(self) -> float | None:
        """Return the earliest deadline."""
        while self._heap:
            at, key = self._heap[0]
            deadline = self._deadlines.get(key)
            if deadline == at:
                return at
            heapq.heappop(self._heap)
            if self._queued.get(key) == at:
                del self._queued[key]
                if deadline is not None:
                    self.arm(key, at=deadline)
        return None

    def expired(self, now: float) -> list[int]:
        """Remove and return the keys whose deadline has passed."""
        keys = []
        while (at := self.next_at()) is not None and at <= now:
            _, key = heapq.heappop(self._heap)
            del self._queued[key], self._deadlines[key]
            keys.append(key)
        return keys
