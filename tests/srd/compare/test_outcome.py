"""Figures of a cell."""

from __future__ import annotations

import json
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.compare.outcome import MAX_SAMPLES, CellOutcome, FlowOutcome, accounts, shares, together
from tests.srd.compare.cases import done, hung, outcomes


@pytest.mark.parametrize("outcome", [done(), hung(), *outcomes().values()])
def test_outcome__survives_json(outcome: CellOutcome) -> None:
    assert CellOutcome.from_dict(json.loads(json.dumps(outcome.to_dict()))) == outcome


def test_goodput__is_what_arrived_over_the_time() -> None:
    assert done().goodput_bps == 8 * (1 << 20) / 2.0
    assert (hung().goodput_bps, hung().seconds) == (8 * (1 << 20) / 5.0, None)
    assert CellOutcome.from_dict(done(0.0).to_dict()).goodput_bps == 0.0


def test_slowdown__is_nothing_without_an_end_or_an_ideal() -> None:
    assert FlowOutcome(1, 0.0, 2.0, 0.5).slowdown == 4.0
    assert FlowOutcome(1, 0.0, None, 0.5).slowdown is None
    assert FlowOutcome(1, 0.0, 2.0, 0.0).slowdown is None


def test_together__adds_receivers_up() -> None:
    first, second = [(0.1, 10), (0.3, 30)], [(0.1, 1), (0.2, 2)]
    assert together([first, second]) == ((0.0, 0), (0.1, 11), (0.2, 12), (0.3, 32))
    assert together([]) == ((0.0, 0),)


@given(st.lists(st.lists(st.integers(1, 1000), max_size=150), max_size=4))
def test_together__ends_with_everything_and_never_falls(arrivals: list[list[int]]) -> None:
    progress = [[(0.01 * number, size) for number, size in enumerate(accumulate(each), 1)] for each in arrivals]
    found = together(progress)
    assert found[-1][1] == sum(map(sum, arrivals))
    assert list(found) == sorted(found)
    assert len(found) <= MAX_SAMPLES + 1


def test_shares__of_nothing_are_zeros() -> None:
    assert shares({"a": 3, "b": 1}) == {"a": 0.75, "b": 0.25}
    assert shares({"a": 0, "b": 0}) == {"a": 0.0, "b": 0.0}


def test_accounts__worst_stall_and_share_of_all() -> None:
    sender = {"sent": 90, "resent": 10, "longest_stall_ms": None, "subflows": None, "cpu_s": 0.5}
    receiver = {"sent": 10, "resent": 0, "longest_stall_ms": 7.0, "subflows": None, "cpu_s": 1.5}
    assert accounts([sender, receiver, None]) == (7.0, 0.1, (0.5, 1.5))
    assert accounts([None]) == (None, None, ())
