"""scripts.benches.cases.hostile: a short run with real processes."""

from __future__ import annotations

import pytest

from scripts.benches.case import CaseOptions
from scripts.benches.cases import hostile


@pytest.mark.root
@pytest.mark.parametrize("plain", [False, pytest.param(True, marks=pytest.mark.long)])
def test_rounds__transfer_survives(*, plain: bool) -> None:
    (round_,) = hostile.rounds(CaseOptions(packets=6000, seed=3, plain=plain))
    figures = round_.ours
    assert figures["packets"] >= 6000
    assert figures["lies"] > 10
    assert (figures["transfer_ok"], figures["wrong_bytes"], figures["crashes"]) == (1, 0, 0)
    assert figures["amplification_ratio"] <= 3
    assert figures["rss_growth_mb"] <= 16
    assert {each.figure for each in hostile.WANTED} <= figures.keys()
