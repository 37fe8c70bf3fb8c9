from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.perf.pacing import Budget, TokenBucket


@given(
    st.integers(1, 10**12),
    st.lists(st.tuples(st.integers(1, 1 << 20), st.floats(0, 10)), min_size=1, max_size=50),
)
def test_token_bucket__never_more_than_the_rate_and_the_burst(rate_bps: int, blocks: list[tuple[int, float]]) -> None:
    now, spent, begun_at = 5.0, 0, 5.0
    bucket = TokenBucket(rate_bps, now=now)
    for size, idle_s in blocks:
        now += idle_s
        now += bucket.delay_s(now)
        allowed = rate_bps / 8 * (now - begun_at + 0.1)
        assert spent <= allowed * (1 + 1e-9) + 1e-6  # what went before this block is paid for
        bucket.spend(size, now=now)
        spent += size


def test_token_bucket__a_busy_sender_has_exactly_the_rate() -> None:
    now, bucket = 0.0, TokenBucket(8_000_000, now=0.0)
    for _ in range(1000):
        now += bucket.delay_s(now)
        bucket.spend(10_000, now=now)
    assert now == pytest.approx(9.99)  # the last block is not paid for yet


def test_budget__is_shared_and_ends() -> None:
    budget = Budget(25)
    assert [budget.take(10) for _ in range(4)] == [10, 10, 5, 0]
    assert [Budget(0).take(10) for _ in range(2)] == [10, 10]
