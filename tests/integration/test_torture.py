"""A minute of `scripts/bench torture` with fresh seeds, which it prints; of what is wrong also how to replay it."""

from __future__ import annotations

import pytest

from scripts.benches.cases.torture import WANTED, measure

SECONDS = 30.0


@pytest.mark.root
@pytest.mark.parametrize("half", [1, 2])
def test_torture__half_a_minute_of_fresh_seeds(half: int) -> None:  # noqa: ARG001 - the same again, with other seeds
    figures = measure(seed=None, seconds=SECONDS, runs=None).ours
    missed = [f"{wanted.figure} {figures[wanted.figure]}, wanted {wanted}" for wanted in WANTED]
    assert all(wanted.met(figures[wanted.figure]) for wanted in WANTED), missed
