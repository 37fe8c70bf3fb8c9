"""Completions over time, from which bandwidth and its peak are computed; the clock can be stopped."""

from __future__ import annotations

import time
from typing import Final, Self

from srd.perf.figures import BandwidthFigures
from srd.perf.sweep.plan import Sweep

POINTS_OF_A_SERIES: Final = 8
"""Points that are kept of as many messages as there may be at a time, over which the peak is taken."""


class CompletionSeries:
    """Of one size."""

    def __init__(self, *, depth: int) -> None:
        self._depth = depth
        self._step = max(1, depth // POINTS_OF_A_SERIES)
        self._zero_ns = 0
        self._stopped_ns = 0
        self.count = 0
        self._points: list[tuple[int, int]] = []

    def start(self) -> None:
        """Begin, or begin again."""
        self.count = 0
        self._points = [(0, 0)]
        self._zero_ns = time.perf_counter_ns()

    def stop_clock(self) -> None:
        """What follows takes no time."""
        self._stopped_ns = time.perf_counter_ns()

    def go_on(self) -> None:
        """Let time pass again."""
        self._zero_ns += time.perf_counter_ns() - self._stopped_ns

    def add(self, count: int) -> None:
        """Count completions."""
        self.count += count
        if self.count - self._points[-1][1] >= self._step:
            self._points.append((time.perf_counter_ns() - self._zero_ns, self.count))

    def end(self) -> None:
        """Take the time of the last completion, which has just come."""
        if self._points[-1][1] < self.count:
            self._points.append((time.perf_counter_ns() - self._zero_ns, self.count))

    def figures(self, size_bytes: int) -> BandwidthFigures:
        """Return bandwidth and rate."""
        return BandwidthFigures.of(self._points, size_bytes=size_bytes, depth=self._depth)


class MessageQuota:
    """How many messages may still be posted: a number, or any until a time."""

    def __init__(self, left: int, *, until: float = 0.0) -> None:
        """Allow `left` messages; or any until `until` (`time.perf_counter`), if it is not 0."""
        self._left, self._until = left, until
        self._taken = 0
        self._parts: list[MessageQuota] = []

    @classmethod
    def of(cls, *, iterations: int, seconds: float) -> MessageQuota:
        """Return one of `iterations`; if they are 0, of `seconds` from now on."""
        return cls(iterations, until=0.0 if iterations else time.perf_counter() + seconds)

    @property
    def total(self) -> int:
        """How many were posted, with those of its parts."""
        return self._taken + sum(part.total for part in self._parts)

    def split(self, count: int) -> list[MessageQuota]:
        """Return `count` equal parts, which together are what is left."""
        each, rest = divmod(self._left, count)
        self._parts = [MessageQuota(each + (number < rest), until=self._until) for number in range(count)]
        self._left = 0
        return self._parts

    def take(self, most: int) -> int:
        """Return how many of `most` may be posted now; they count as posted. Of a time that is over it is one batch."""
        if self._until:
            count = most if time.perf_counter() < self._until or not self._taken else 0
        else:
            count = min(most, self._left)
            self._left -= count
        self._taken += count
        return count


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
