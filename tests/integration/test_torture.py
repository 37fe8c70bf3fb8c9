"""A minute of `scripts/bench torture` with fresh seeds, which it prints; of what is wrong also how to replay it."""

from __future__ import annotations

import pytest

from scripts.benches.cases.torture import WANTED, measure

SECONDS = 60.0


@pytest.mark.root
@pytest.mark.timeout(400)
def test_torture__a_minute_of_fresh_seeds() -> None:
    figures = measure(seed=None, seconds=SECONDS, runs=None).ours
    missed = [f"{wanted.figure} {figures[wanted.figure]}, wanted {wanted}" for wanted in WANTED]
    assert all(wanted.met(figures[wanted.figure]) for wanted in WANTED), missed
