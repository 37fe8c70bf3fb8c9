"""`scripts/bench torture`: a few fixed scenarios, and a minute of fresh ones, whose seeds it prints."""

from __future__ import annotations

import pytest

from scripts.benches.case import CaseOptions
from scripts.benches.cases.torture import WANTED, rounds

pytestmark = pytest.mark.root


def missed(request: CaseOptions) -> list[str]:
    (round_,) = rounds(request)
    figures = round_.ours
    return [f"{wanted}: {figures[wanted.figure]}" for wanted in WANTED if not wanted.met(figures[wanted.figure])]


def test_torture__fixed_seeds() -> None:
    assert missed(CaseOptions(seed=1, runs=2)) == []


@pytest.mark.long
def test_torture__a_minute_of_fresh_seeds() -> None:
    assert missed(CaseOptions(seconds=60)) == []
