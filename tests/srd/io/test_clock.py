"""srd.io.clock."""

from __future__ import annotations

import time

import pytest

from srd.io.clock import ATTEMPTS, wall_to_monotonic_s


def readings(monkeypatch: pytest.MonkeyPatch, interruptions_s: list[float]) -> None:
    """Stop the clocks, except for an interruption before each reading of the wall clock."""
    now, pauses = [100.0], iter(interruptions_s)

    def wall() -> float:
        now[0] += next(pauses)
        return now[0] + 1e9

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "time", wall)


@pytest.mark.parametrize("interruptions_s", [[0.0], [0.02, 0.003, 0.0]])
def test_wall_to_monotonic__takes_an_uninterrupted_reading(
    monkeypatch: pytest.MonkeyPatch, interruptions_s: list[float]
) -> None:
    """Without repetition the error would be half of 20 ms."""
    readings(monkeypatch, interruptions_s)
    assert wall_to_monotonic_s() == -1e9


def test_wall_to_monotonic__takes_the_shortest_of_interrupted_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    readings(monkeypatch, [0.02, 0.004, 0.002, 0.03][:ATTEMPTS])
    assert wall_to_monotonic_s() == pytest.approx(-1e9 - 0.001, abs=1e-6)


def test_wall_to_monotonic__of_this_machine() -> None:
    offset_s = wall_to_monotonic_s()
    before, wall, after = time.monotonic(), time.time(), time.monotonic()
    assert before - 0.1 < wall + offset_s < after + 0.1
