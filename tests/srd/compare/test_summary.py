"""Medians, percentiles, and the slowdown by size."""

from __future__ import annotations

import math

import pytest

from srd.compare.outcome import FlowOutcome
from srd.compare.summary import Point, _percentile, by_size, summarize
from tests.srd.compare.cases import GRID, done, outcomes

SUMMARIES = {each.point: each for each in summarize(GRID, outcomes())}


def test_summarize__each_point_in_the_order_of_the_report() -> None:
    points = list(SUMMARIES)
    assert len(points) == 2 * 2 * 4
    assert points[0] == Point("two", "bulk", "clean", "srd")
    assert points[-1] == Point("two", "search", "dead", "mptcp")


def test_summarize__what_reached_its_end() -> None:
    summary = SUMMARIES[Point("two", "bulk", "clean", "srd")]
    assert (summary.states, summary.seconds, summary.p50, summary.p99) == ({"ok": 2}, 2.0, 4.0, 4.0)
    assert summary.goodput_bps == done().goodput_bps
    assert summary.reason is None


def test_summarize__what_did_not_is_shown_as_such() -> None:
    hung = SUMMARIES[Point("two", "bulk", "dead", "cubic")]
    assert (hung.states, hung.seconds, hung.p50, hung.p99) == ({"timeout": 2}, None, 6.0, None)
    assert hung.reason == "stopped after 5 s with 50 % received"
    missing = SUMMARIES[Point("two", "bulk", "clean", "bbr")]
    assert (missing.measured, missing.goodput_bps) == (False, None)
    assert SUMMARIES[Point("two", "bulk", "clean", "mptcp")].reason == "h1: boom"


def test_by_size__groups_of_equally_many() -> None:
    flows = [FlowOutcome(size, 0.0, float(size), 1.0) for size in range(1, 101)]
    bins = by_size(flows, bins=10)
    assert [each.most_bytes for each in bins] == list(range(10, 101, 10))
    assert [each.p50 for each in bins] == list(range(5, 96, 10))
    assert [each.p99 for each in bins] == list(range(10, 101, 10))
    assert by_size([]) == ()
    assert len(by_size(flows[:3])) == 3


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([], 50, None),
        ([1.0, math.inf], 50, 1.0),
        ([1.0, math.inf], 99, None),
    ],
)
def test_percentile__infinite_or_of_nothing_is_none(values: list[float], share: float, expected: float | None) -> None:
    assert _percentile(values, share) == expected
