"""A short run of the hostile program of `scripts/bench card-fuzz`, which has the long one."""

from __future__ import annotations

import pytest

from scripts.benches.card_fuzz.run import measure
from scripts.benches.cases.card_fuzz import WANTED

pytestmark = pytest.mark.compiled  # cards as processes

ENTRIES = 20_000


@pytest.mark.parametrize("seed", [1])
def test_a_hostile_program_harms_nobody(seed: int) -> None:
    figures = measure(ENTRIES, seed=seed)
    missed = {wanted.figure: figures[wanted.figure] for wanted in WANTED if not wanted.met(figures[wanted.figure])}
    assert not missed
    assert figures["entries"] >= ENTRIES
    assert figures["neighbour_messages"] > 0
