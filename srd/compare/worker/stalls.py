"""Stalls of what arrives at a host. Pure: times are arguments.

A stall is a time in which less than a tenth of the mean rate arrived. Without a byte at all would be too strict: a
transport that has lost its path lets a few packets through, and a chart shows that it stands. The mean is over all the
time that counts, so it is known at the end. Arrivals within a millisecond are one: it bounds the memory, and shorter
stalls are the gaps between blocks.

Theory of operation. Let k be a tenth of the mean rate, and g(t) = bytes until t - k t. From `a` to `b` is a stall if
g(b) <= g(a). The widest such pair is found in one pass from each side: only beginnings with a greater g than all before
them can be its beginning, and the latest end is tried first.
"""

from __future__ import annotations

from array import array
from typing import Final

SHARE: Final = 0.1
"""Of the mean rate; what is below it is a stall."""
GRAIN_S: Final = 0.001


class Stalls:
    """The times without progress of one receiver."""

    def __init__(self) -> None:
        self._began_at: float | None = None
        self._total_bytes = 0
        self._first_at = array("d")
        """Of each group of arrivals within GRAIN_S."""
        self._last_at = array("d")
        self._bytes = array("q")
        """Of each group and all before it."""

    def start(self, at: float) -> None:
        """Count from now on; otherwise from the first arrival on."""
        self._began_at = at

    def arrived(self, size_bytes: int, *, at: float) -> None:
        """Note an arrival."""
        if self._began_at is None:
            self._began_at = at
        self._total_bytes += size_bytes
        if self._first_at and at - self._first_at[-1] < GRAIN_S:
            self._last_at[-1], self._bytes[-1] = at, self._total_bytes
            return
        self._first_at.append(at)
        self._last_at.append(at)
        self._bytes.append(self._total_bytes)

    def longest_s(self, *, until: float | None) -> float:
        """Return the longest stall; `until`: when it ends if more is to come, None: with the last arrival."""
        if self._began_at is None:
            return 0.0
        begins, ends = [self._began_at, *self._last_at], [*self._first_at]
        done = [0, *self._bytes]
        if until is not None:
            ends.append(until)
        seconds = max([begins[-1], *ends]) - self._began_at
        per_s = SHARE * self._total_bytes / seconds if seconds > 0 else 0.0
        return _longest(
            [(at, size - per_s * at) for at, size in zip(begins, done, strict=True)],
            [(at, size - per_s * at) for at, size in zip(ends, done, strict=False)],
        )


def _longest(begins: list[tuple[float, float]], ends: list[tuple[float, float]]) -> float:
    """Return the longest time from a beginning to an end with no greater value; (time, value), in order of time."""
    candidates: list[tuple[float, float]] = []
    for begin in begins:
        if not candidates or begin[1] > candidates[-1][1]:
            candidates.append(begin)
    longest = 0.0
    for at, value in reversed(ends):
        while candidates and candidates[-1][1] >= value:
            longest = max(longest, at - candidates.pop()[0])
    return longest
