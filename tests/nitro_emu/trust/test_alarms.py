"""nitro_emu.trust.alarms: everything is counted, little is logged."""

from __future__ import annotations

import logging
import threading

import pytest

from nitro_emu.trust.alarms import MAX_KINDS, OTHER_KINDS, Alarms, RateLimit, TokenBucket


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


def test_alarms_are_counted_by_kind_and_logged_at_error(caplog: pytest.LogCaptureFixture) -> None:
    alarms = Alarms(clock=Clock())
    alarms.raise_alarm("egress", "203.0.113.7")
    alarms.raise_alarm("egress", "203.0.113.8")
    alarms.raise_alarm("forged", "a source")
    assert dict(alarms.counts) == {"egress": 2, "forged": 1}
    assert [(each.levelname, each.message) for each in caplog.records] == [
        ("ERROR", "alarm egress: 203.0.113.7"),
        ("ERROR", "alarm egress: 203.0.113.8"),
        ("ERROR", "alarm forged: a source"),
    ]


def test_flood_of_one_kind_is_suppressed_and_its_number_is_told(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    alarms = Alarms(per_s=1, burst=2, clock=clock)
    for _ in range(1000):
        alarms.raise_alarm("egress", "flood")
    alarms.raise_alarm("other", "is not hidden by it")
    clock.now += 1
    alarms.raise_alarm("egress", "again")
    assert alarms.counts["egress"] == 1001
    assert [each.message for each in caplog.records] == [
        "alarm egress: flood",
        "alarm egress: flood",
        "alarm other: is not hidden by it",
        "alarm egress: again (998 before it were not logged)",
    ]


def test_kinds_and_texts_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    alarms = Alarms()
    for number in range(10 * MAX_KINDS):
        alarms.raise_alarm(f"kind {number}", "x" * 100_000)
    assert len(alarms.counts) == MAX_KINDS + 1
    assert alarms.counts[OTHER_KINDS] == 9 * MAX_KINDS
    assert max(len(each.message) for each in caplog.records) < 600


def test_threads_lose_no_alarm() -> None:
    alarms = Alarms(burst=1)

    def flood() -> None:
        for _ in range(1000):
            alarms.raise_alarm("kind", "text")

    threads = [threading.Thread(target=flood) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert alarms.counts["kind"] == 4000


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
