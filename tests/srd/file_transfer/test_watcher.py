"""srd.file_transfer.watcher, on a loop with simulated time."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest

from srd.file_transfer.watcher import StallMeter


async def test_stall_meter__the_longest_time_without_a_landing_from_the_first_on() -> None:
    landed, now = 0, 100.0
    loop = asyncio.get_running_loop()
    with patch.object(loop, "time", lambda: now), StallMeter(lambda: landed) as meter:
        for seconds, arrived in ((9.0, 0), (1.0, 10), (0.25, 10), (0.5, 0), (0.5, 10), (7.0, 0)):
            now += seconds
            landed += arrived
            meter._sample()
    assert meter.longest_s == 1.0, "neither before the first landing nor after the last"


async def test_stall_meter__what_landed_before_it_began_is_no_landing() -> None:
    now, landed = 0.0, 0
    loop = asyncio.get_running_loop()
    meter = StallMeter(lambda: landed)
    landed = 100  # the offer; then the receiver opens the file
    with patch.object(loop, "time", lambda: now), meter:
        now += 0.08
        landed += 1000
        meter._sample()
        now += 0.01
        landed += 1000
        meter._sample()
    assert meter.longest_s == pytest.approx(0.01)
