"""scripts.benches.cases.card: ratios of one round, and what is too few."""

from __future__ import annotations

import pytest

from scripts.benches.cases.card import percentiles_of, ratios
from scripts.harness.errors import BenchError

OURS = {
    "bulk_gbps": 14.0,
    "host_cpu_s_per_gb": 0.05,
    "neighbour_p99_idle_us": 100.0,
    "neighbour_p99_fair_us": 200.0,
    "neighbour_p99_rings_us": 250.0,
    "neighbour_p99_wire_us": 300.0,
}
OTHERS = {
    "in_process": {"p50_64b_us": 50.0, "bulk_gbps": 20.0, "host_cpu_s_per_gb": 1.0},
    "card_asleep": {"p50_64b_us": 100.0},
    "card_polling": {"p50_64b_us": 400.0},
    "encrypted": {"bulk_gbps": 7.0},
}


def test_ratios() -> None:
    assert ratios(OURS, OTHERS) == {
        "p50_over_inprocess_ratio": 2.0,
        "write_over_inprocess_ratio": 0.7,
        "encrypted_over_plain_ratio": 0.5,
        "host_cpu_ratio": 0.05,
        "neighbour_p99_ratio": 1.5,
        "neighbour_p99_over_idle_ratio": 3.0,
    }


def test_percentiles__too_few_round_trips() -> None:
    figures = {"p50_us": 1.0, "p99_us": 2.0, "p999_us": 3.0}
    assert percentiles_of({"figures": figures, "round_trips": 200}) == figures
    with pytest.raises(BenchError, match="only 199 round trips"):
        percentiles_of({"figures": figures, "round_trips": 199})
