from __future__ import annotations

import pytest

from srd.perf.stream import BURST_S, Budget, pace


def test_pace__a_stream_that_was_stopped_gets_no_more_than_the_burst_at_once() -> None:
    bucket = pace(8_000_000, now=5.0)
    assert bucket.delay_s(5.0) == 0
    bucket.charge(10_000, now=5.0)
    assert bucket.delay_s(5.0) == pytest.approx(0.01)
    bucket.charge(110_000, now=1000.0)
    assert bucket.delay_s(1000.0) == pytest.approx(0.11 - BURST_S)


def test_budget__is_shared_and_ends() -> None:
    budget = Budget(25)
    assert [budget.take(10) for _ in range(4)] == [10, 10, 5, 0]
    assert [Budget(0).take(10) for _ in range(2)] == [10, 10]
