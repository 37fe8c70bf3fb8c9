"""netns.base.token_bucket: the rate in the long run, and the burst after a pause."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netns.base.token_bucket import TokenBucket


def test_bucket__is_full_at_first_and_refills_at_its_rate() -> None:
    bucket = TokenBucket(1000, depth_s=0.5)
    assert bucket.is_full(100.0)
    assert bucket.tokens(100.0) == pytest.approx(500)
    bucket.charge(800, now=100.0)
    assert bucket.tokens(100.0) == pytest.approx(-300)
    assert bucket.ready_at() == pytest.approx(100.3)
    assert bucket.delay_s(100.0) == pytest.approx(0.3)
    assert bucket.tokens(100.4) == pytest.approx(100)
    assert not bucket.is_full(100.4)
    assert bucket.tokens(1000.0) == pytest.approx(500), "no deeper than its depth"
    assert bucket.is_full(1000.0)


def test_take__lets_a_burst_pass_and_then_so_many_a_second() -> None:
    bucket = TokenBucket(2, depth_s=1.5)
    assert [bucket.take(1, now=100.0) for _ in range(5)] == [True, True, True, False, False]
    assert [bucket.take(1, now=100.5) for _ in range(2)] == [True, False]
    assert [bucket.take(1, now=3700.0) for _ in range(4)] == [True, True, True, False]


@given(per_s=st.floats(0.1, 1e3), burst=st.integers(1, 100), now=st.floats(0, 1e7))
def test_take__the_whole_burst_whatever_the_clock_says(per_s: float, burst: int, now: float) -> None:
    bucket = TokenBucket(per_s, depth_s=burst / per_s)
    assert [bucket.take(1, now=now) for _ in range(burst + 1)] == [True] * burst + [False]


@given(
    per_s=st.floats(1e3, 1e12),
    steps=st.lists(st.tuples(st.integers(0, 3_000_000), st.floats(0, 5)), min_size=1, max_size=60),
)
def test_charge__never_more_than_the_rate_and_the_depth_where_debts_are_waited_for(
    per_s: float, steps: list[tuple[int, float]]
) -> None:
    now = began_at = 5.0
    bucket, carried = TokenBucket(per_s, depth_s=0.1, empty_at=now), 0
    for size, idle_s in steps:
        now += idle_s
        bucket.charge(size, now=now)
        now += bucket.delay_s(now)
        carried += size
        assert carried <= (now - began_at) * per_s * (1 + 1e-9) + 1, "empty at first, so no more than the rate"


def test_charge__who_is_busy_has_exactly_the_rate() -> None:
    now, bucket = 0.0, TokenBucket(1e6, depth_s=0.1, empty_at=0.0)
    for _ in range(1000):
        now += bucket.delay_s(now)
        bucket.charge(10_000, now=now)
    assert now == pytest.approx(9.99)  # the last is not paid for yet
