"""The pacer, a token bucket that spreads a window over its round trip, so that a window is not sent as one burst.

It also makes windows below one packet possible: at a window of half a packet the bucket refills one packet in two round
trips (Swift, SIGCOMM 2020, section 3.4).
"""

from __future__ import annotations


class Pacer:
    """Token bucket: `release_at` is when the next burst may be sent; `charge` accounts for one that was."""

    __slots__ = ("_debt_until", "_depth_s")

    def __init__(self, *, depth_s: float) -> None:
        """`depth_s` is the depth of the bucket, as time at the pacing rate."""
        self._depth_s = depth_s
        # The bucket as a point in time: at the pacing rate, everything sent so far would have left by then.
        self._debt_until = 0.0

    def release_at(self) -> float:
        """Return the time from which the next burst may be sent."""
        return self._debt_until - self._depth_s

    def hold(self, *, until: float) -> None:
        """Send nothing before `until`."""
        self._debt_until = max(self._debt_until, until + self._depth_s)

    def charge(self, size_bytes: int, *, now: float, rate_bytes_per_s: float) -> None:
        """Account for a burst sent at `now`."""
        self._debt_until = max(self._debt_until, now) + size_bytes / rate_bytes_per_s
