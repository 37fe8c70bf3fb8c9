"""srd.log_limit: a burst of records passes, and then so many a second."""

from __future__ import annotations

import logging

import pytest

from srd.log_limit import RateLimit, TokenBucket


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_bucket_lets_a_burst_pass_and_then_so_many_a_second() -> None:
    clock = Clock()
    bucket = TokenBucket(per_s=2, burst=3, clock=clock)
    assert [bucket.take() for _ in range(5)] == [True, True, True, False, False]
    clock.now += 0.5
    assert [bucket.take(), bucket.take()] == [True, False]
    clock.now += 3600
    assert bucket.is_full
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]


def test_bucket_survives_a_clock_that_goes_back() -> None:
    clock = Clock()
    bucket = TokenBucket(per_s=1, burst=1, clock=clock)
    assert bucket.take()
    clock.now -= 50
    assert not bucket.take()
    clock.now += 1
    assert bucket.take()


def test_records_of_a_tenant_are_limited_over_all_its_loggers(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    limit = RateLimit(per_s=8, burst=5, clock=clock)
    one, two = logging.getLogger("tenant.one"), logging.getLogger("tenant.two")
    for logger in (one, two):
        logger.addFilter(limit)
    try:
        for number in range(10):
            one.warning("open %d", number)
            two.warning("close %d", number)
        clock.now += 0.125
        two.warning("%s of %d", "the end", 3)
        clock.now += 0.125
        two.warning("quiet")
    finally:
        for logger in (one, two):
            logger.removeFilter(limit)
    assert [each.message for each in caplog.records] == [
        "open 0",
        "close 0",
        "open 1",
        "close 1",
        "open 2",
        "the end of 3 (15 before it were not logged)",
        "quiet",
    ]
    assert limit.suppressed == 15
