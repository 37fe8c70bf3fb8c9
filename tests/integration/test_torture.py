"""`scripts/bench torture`: a few fixed scenarios, and a minute of fresh ones, whose seeds it prints."""

from __future__ import annotations

import pytest

from scripts.benches.cases.torture import WANTED, measure

pytestmark = pytest.mark.root


def missed(*, seed: int | None, seconds: float, runs: int | None) -> list[str]:
    figures = measure(seed=seed, seconds=seconds, runs=runs).ours
    return [f"{wanted}: {figures[wanted.figure]}" for wanted in WANTED if not wanted.met(figures[wanted.figure])]


def test_torture__fixed_seeds() -> None:
    assert missed(seed=1, seconds=0, runs=2) == []


@pytest.mark.long
def test_torture__a_minute_of_fresh_seeds() -> None:
    assert missed(seed=None, seconds=60, runs=None) == []
