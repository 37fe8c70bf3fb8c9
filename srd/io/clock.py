"""The distance between two clocks: the kernel stamps packets on the wall clock, the core runs on the monotonic one.

They are read one after the other, and a process may lose its processor in between, for milliseconds. A distance that
is wrong by that makes a round trip look shorter than the wire, the shortest of all, against which every queue is
measured for seconds: the sender would slow down for a queue that nobody built. So the monotonic clock is read on both
sides of the other, and what took long is read again.
"""

from __future__ import annotations

import time

TRUSTED_S = 5e-6
"""Two readings of a clock that far apart had nothing but the third between them: 0.1 us without an interruption."""
ATTEMPTS = 4
"""Readings before the least bad of them is taken: on a host that interrupts four in a row nothing is exact."""


def wall_to_monotonic_s() -> float:
    """Return what to add to a time of the wall clock to have it on the monotonic one, in seconds."""
    best_s, distance_s = float("inf"), 0.0
    for _ in range(ATTEMPTS):
        before, wall, after = time.monotonic(), time.time(), time.monotonic()
        if after - before < best_s:
            best_s, distance_s = after - before, (before + after) / 2 - wall
        if best_s < TRUSTED_S:
            break
    return distance_s
