"""srd.log_limit: a burst of records passes, and then so many a second."""

from __future__ import annotations

import logging

import pytest

from srd.log_limit import RateLimit


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


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
