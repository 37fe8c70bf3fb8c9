"""srd.file_transfer.token_bucket: the rate in the long run, and the burst, by a clock of the test's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.file_transfer.token_bucket import TokenBucket


class Clock:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = 5.0

    def __call__(self) -> float:
        return self.now


@given(
    steps=st.lists(st.tuples(st.integers(0, 3_000_000), st.floats(0, 5)), min_size=1, max_size=60),
    rate_bps=st.integers(1_000_000, 10**10),
)
def test_delay_s__never_more_than_the_rate_from_the_beginning(steps: list[tuple[int, float]], rate_bps: int) -> None:
    clock = Clock()
    bucket = TokenBucket(rate_bps, burst_bytes=1 << 20, clock=clock)
    sent_bytes, began = 0, clock.now
    for size_bytes, pause_s in steps:
        clock.now += pause_s
        clock.now += bucket.delay_s(size_bytes)
        sent_bytes += size_bytes
        allowed_bytes = (clock.now - began) * rate_bps / 8
        assert sent_bytes <= allowed_bytes * (1 + 1e-9) + 1


def test_delay_s__after_a_pause_a_burst_at_once_and_then_the_rate() -> None:
    clock = Clock()
    bucket = TokenBucket(8000, burst_bytes=500, clock=clock)
    assert bucket.delay_s(250) == pytest.approx(0.25)
    clock.now += 100
    assert bucket.delay_s(500) == 0
    assert bucket.delay_s(1000) == pytest.approx(1.0)
    clock.now += 100
    assert bucket.delay_s(500) == 0
    assert bucket.delay_s(1) > 0
