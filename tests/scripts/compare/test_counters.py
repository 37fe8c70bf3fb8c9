from __future__ import annotations

from dataclasses import replace

import pytest

from netns.observe.machine import Ticks
from scripts.compare.counters import Reading
from scripts.compare.fabric import Fabric

BEFORE = Reading(at=10.0, uplink_bytes=(100, 0), relay_cpu_seconds=1.0, ticks=Ticks(busy=50, stolen=10, total=100))
AFTER = Reading(at=12.0, uplink_bytes=(400, 100), relay_cpu_seconds=2.5, ticks=Ticks(busy=350, stolen=50, total=500))


def test_reading__two_make_shares() -> None:
    assert AFTER.path_shares(since=BEFORE) == (0.75, 0.25)
    assert AFTER.relay_cpu_fraction(since=BEFORE) == 0.75
    assert AFTER.machine_busy_fraction(since=BEFORE) == 0.75
    assert AFTER.stolen_fraction(since=BEFORE) == 0.1


def test_reading__unavailable_values_are_none() -> None:
    assert BEFORE.relay_cpu_fraction(since=BEFORE) is None
    assert BEFORE.machine_busy_fraction(since=BEFORE) is None
    assert BEFORE.stolen_fraction(since=BEFORE) is None
    assert replace(AFTER, relay_cpu_seconds=None).relay_cpu_fraction(since=BEFORE) is None
    assert BEFORE.path_shares(since=BEFORE) == (0.0, 0.0)


def test_take__of_this_machine(loopback: Fabric) -> None:
    reading = Reading.take(loopback)
    assert 0 < reading.ticks.busy < reading.ticks.total
    assert reading.at == pytest.approx(Reading.take(loopback).at, abs=5)
