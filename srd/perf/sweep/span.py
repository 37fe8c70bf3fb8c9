"""How long one size is measured, and what of it does not count."""

from __future__ import annotations

from typing import Final, Self

from srd.perf.sweep.plan import Sweep

WARM_UP: Final = 200
"""Round trips of each size that do not count: no more than are to be counted, and no longer than WARM_UP_FRACTION."""
WARM_UP_FRACTION: Final = 0.25
"""Of the time, if a size has one."""


class Span:
    """Of one size. Times are nanoseconds; `now_ns` is an argument, so that it runs in virtual time."""

    def __init__(self, *, iterations: int, seconds: float, now_ns: int) -> None:
        """Begin: `iterations` that count, or `seconds` with those that do not."""
        self._iterations = iterations
        self._warm_up = min(WARM_UP, iterations) if iterations else WARM_UP
        self._end_ns = now_ns + round(seconds * 1e9)
        self._warm_end_ns = now_ns + round(WARM_UP_FRACTION * seconds * 1e9)

    @classmethod
    def of(cls, sweep: Sweep, *, now_ns: int) -> Self:
        """Begin a size of a sweep."""
        return cls(iterations=sweep.iterations, seconds=sweep.seconds, now_ns=now_ns)

    def goes_on(self, now_ns: int, *, counted: int) -> bool:
        """Whether to begin another one; at least one is counted."""
        if self._iterations:
            return counted < self._iterations
        return now_ns < self._end_ns or not counted

    def counts(self, began_ns: int, *, done: int) -> bool:
        """Whether the one that began then counts, after `done` before it."""
        return done >= self._warm_up or (not self._iterations and began_ns >= self._warm_end_ns)
