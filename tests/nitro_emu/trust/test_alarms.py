"""nitro_emu.trust.alarms: everything is counted, little is logged."""

from __future__ import annotations

import threading

import pytest

from nitro_emu.trust.alarms import MAX_KINDS, OTHER_KINDS, Alarms
from tests.srd.test_log_limit import Clock


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
