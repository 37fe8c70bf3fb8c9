"""When a read that has no answer yet is asked of another replica, too.

A lost packet of a short read shows late, as no packet follows it: a read that takes three times as long as the others
waits for that, and another replica answers sooner. (Dean and Barroso, "The Tail at Scale", 2013: hedged requests after
the 95th percentile.) So it is asked after twice the median of the last reads, unless more than one read in twenty takes
as long: what is only slow is not made slower by more requests. Long reads take as long as they are long, and wait for
MOST_S.
"""

from __future__ import annotations

import math
from typing import Final

MOST_S: Final = 0.03
"""Longer than nearly all reads take, and so short that a server that has stopped is hardly noticed."""
LEAST_S: Final = 0.001
"""What event loops tell apart, and a turn of a busy host."""
SHORT_BYTES: Final = 64 << 10

_OTHERS: Final = 0.95
_OVER_MEDIAN: Final = 2.0
_GAIN: Final = 0.05
"""A quantile goes up by so much, or down, in proportion to how often it should: from 30 ms to 1 ms in 1,400 reads."""


class _Quantile:
    """Follows a quantile, without keeping what it is of: it rises so often as is longer, and falls for the others."""

    def __init__(self, fraction: float) -> None:
        self.value_s = MOST_S
        self._up, self._down = math.exp(_GAIN * fraction), math.exp(-_GAIN * (1 - fraction))

    def add(self, took_s: float) -> None:
        value_s = self.value_s * (self._up if took_s > self.value_s else self._down)
        self.value_s = min(max(value_s, LEAST_S), MOST_S)


class Hedge:
    """What the reads of one volume have taken."""

    def __init__(self) -> None:
        self._median, self._others = _Quantile(0.5), _Quantile(_OTHERS)

    def delay_s(self, length_bytes: int) -> float:
        """Return after how long without an answer another replica is asked."""
        if length_bytes > SHORT_BYTES:
            return MOST_S
        return min(max(_OVER_MEDIAN * self._median.value_s, self._others.value_s), MOST_S)

    def answered(self, length_bytes: int, *, took_s: float) -> None:
        """Note how long the first answer has taken."""
        if length_bytes <= SHORT_BYTES:
            self._median.add(took_s)
            self._others.add(took_s)
