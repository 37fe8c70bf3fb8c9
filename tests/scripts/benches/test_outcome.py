"""scripts.benches.outcome: medians, the worst round, and values that JSON lacks."""

from __future__ import annotations

import json
import math

import pytest

from scripts.benches.outcome import CaseOutcome, Round, Wanted, over

AT_MOST = Wanted("stall_rtts", "<=", 3)
AT_LEAST = Wanted("capacity_fraction", ">=", 0.95)


def outcome() -> CaseOutcome:
    rounds = tuple(
        Round(seed, {"stall_rtts": stall, "capacity_fraction": capacity}, {"one_path": {"stall_rtts": 10.0 * seed}})
        for seed, stall, capacity in ((1, 1.0, 0.99), (2, 2.0, 0.90), (3, 7.0, 0.97))
    )
    return CaseOutcome("slow", "virtual", rounds, (AT_MOST, AT_LEAST))


def test_outcome__medians_beside_the_worst() -> None:
    found = outcome()
    assert found.ours == {"stall_rtts": 2.0, "capacity_fraction": 0.97}
    assert found.baselines == {"one_path": {"stall_rtts": 20.0}}
    assert found.checks == {AT_MOST: 7.0, AT_LEAST: 0.90}


def test_wanted__over_the_median() -> None:
    assert Wanted("tcp_ratio", ">=", 1, over="median").decisive([3.0, 1.0, 2.0]) == 2.0
    assert Wanted("tcp_ratio", ">=", 1).decisive([3.0, 1.0, 2.0]) == 1.0


def test_over__of_figures_that_both_have() -> None:
    ratios = {"tcp_ratio": "gbps", "p50_ratio": "p50_us", "p99_ratio": "p99_us"}
    assert over({"gbps": 3.0, "p50_us": 1.0, "p99_us": 2.0}, {"gbps": 2.0, "p50_us": 4.0}, ratios) == {
        "tcp_ratio": 1.5,
        "p50_ratio": 0.25,
    }


def test_to_dict__has_the_keys_that_readers_rely_on() -> None:
    document = json.loads(json.dumps(outcome().to_dict(), allow_nan=False))
    assert list(document) == ["case", "fabric", "environment", "rounds", "ours", "peers", "checks", "missing"]
    assert document["checks"]["stall_rtts"] == {"value": 7.0, "wanted": "<= 3"}
    assert document["rounds"][1]["peers"]["one_path"] == {"stall_rtts": 20.0}
    assert document["environment"]["python"]


def test_missing__bounds_are_left_out_and_named_and_others_must_be_there() -> None:
    rounds = (Round(1, {"stall_rtts": 1.0}),)
    missing = {"no tool": ("capacity_*",), "no library": ("x", "capacity_fraction")}
    found = CaseOutcome("x", "veth", rounds, (AT_MOST, AT_LEAST), missing)
    assert (found.checks, found.unmeasured) == ({AT_MOST: 1.0}, {AT_LEAST: "no tool; no library"})
    document = found.to_dict()
    assert list(document["checks"]) == ["stall_rtts"]
    assert document["missing"] == [{"reason": key, "figures": list(value)} for key, value in missing.items()]
    with pytest.raises(KeyError, match="capacity_fraction"):
        CaseOutcome("x", "veth", rounds, (AT_MOST, AT_LEAST), {"no tool": ("stall_*",)}).checks  # noqa: B018


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_to_dict__not_finite_is_null(value: float) -> None:
    rounds = (Round(1, {"stall_rtts": 1.0}), Round(2, {"stall_rtts": value}))
    document = json.loads(json.dumps(CaseOutcome("x", "virtual", rounds, (AT_MOST,)).to_dict(), allow_nan=False))
    assert document["checks"]["stall_rtts"]["value"] is None
    assert document["rounds"][1]["ours"]["stall_rtts"] is None
