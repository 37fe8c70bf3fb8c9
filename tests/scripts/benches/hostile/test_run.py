"""scripts.benches.hostile: a short run of the whole, with real processes."""

from __future__ import annotations

import pytest

from scripts.benches.hostile.run import measure, worker
from scripts.harness.errors import BenchError


@pytest.mark.root
def test_measure__nothing_gives_way() -> None:
    figures = measure(6000, seed=3)
    assert (figures["packets"], figures["transfer_ok"], figures["wrong_bytes"], figures["crashes"]) == (6000, 1, 0, 0)
    assert figures["amplification_ratio"] <= 3
    assert figures["rss_growth_mb"] <= 16


def test_worker__that_ends_is_an_error_with_its_last_line() -> None:
    refused = pytest.raises(BenchError, match=r"liar ended.*Error")
    with worker("liar", "scripts.benches.hostile.attack") as liar, refused:
        liar.event("anything")
