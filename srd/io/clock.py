"""The offset between two clocks: the kernel timestamps packets on the wall clock, the core runs on the monotonic one.

The clocks are read one after the other, and the process may be preempted in between, for milliseconds. An offset that
is wrong by that much makes an RTT sample too short. It would become the minimum RTT, from which queueing delay is
computed for seconds, and the sender would slow down for a queue that does not exist. So the monotonic clock is read
before and after the wall clock, and a reading that took long is repeated.
"""

from __future__ import annotations

import time
from typing import Final

TRUSTED_S: Final = 5e-6
"""A reading that took less than this was not interrupted."""
ATTEMPTS: Final = 4
"""Readings before the best one is used: a host that interrupts four in a row allows no better."""


def wall_to_monotonic_s() -> float:
    """Return the offset in seconds that converts a wall clock time to the monotonic clock by addition."""
    best_s, distance_s = float("inf"), 0.0
    for _ in range(ATTEMPTS):
        before, wall, after = time.monotonic(), time.time(), time.monotonic()
        if after - before < best_s:
            best_s, distance_s = after - before, (before + after) / 2 - wall
        if best_s < TRUSTED_S:
            break
    return distance_s
