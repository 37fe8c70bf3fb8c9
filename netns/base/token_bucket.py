"""A token bucket: a rate in the long run, and a burst after a pause."""

from __future__ import annotations

import math
from typing import Final

_ROUNDING: Final = 1e-3
"""Tokens that sums of floating-point numbers may lack."""


class TokenBucket:
    """A bucket as a point in time: when all that was charged would have been carried at the rate.

    Times are seconds of one monotonic clock. Not for several threads at once.
    """

    __slots__ = ("_depth_s", "_done_at", "_per_s")

    def __init__(self, per_s: float, *, depth_s: float, empty_at: float = -math.inf) -> None:
        """`per_s`: tokens per second; `depth_s`: the depth, as time at that rate. Full at first, or empty at a time."""
        self._per_s = per_s
        self._depth_s = depth_s
        self._done_at = empty_at + depth_s

    def charge(self, tokens: float, *, now: float) -> None:
        """Take tokens, more than there are if need be: that is a debt."""
        self._done_at = max(self._done_at, now) + tokens / self._per_s

    def take(self, tokens: float, *, now: float) -> bool:
        """Take tokens if there are as many; return whether there were."""
        if self.tokens(now) + _ROUNDING < tokens:
            return False
        self.charge(tokens, now=now)
        return True

    def tokens(self, now: float) -> float:
        """Return how many tokens there are; negative: a debt."""
        return (now + self._depth_s - max(self._done_at, now)) * self._per_s

    def ready_at(self, level_s: float = 0.0) -> float:
        """Return from when there are tokens for `level_s`, as time at the rate; 0: no debt."""
        return self._done_at - self._depth_s + level_s

    def delay_s(self, now: float) -> float:
        """Return for how long there is a debt."""
        return max(self._done_at - self._depth_s - now, 0.0)

    def is_full(self, now: float) -> bool:
        """Whether a new bucket would be the same."""
        return self._done_at <= now
