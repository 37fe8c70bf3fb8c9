from __future__ import annotations

import select
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from srd.io.timer import TimerFd
from tests.patience import PATIENCE_S


@pytest.fixture
def timer() -> Iterator[TimerFd]:
    made = TimerFd()
    yield made
    made.close()


def readable(timer: TimerFd, *, within_s: float) -> bool:
    return bool(select.select([timer.fd], [], [], within_s)[0])


def remaining_s(timer: TimerFd) -> float:
    (line,) = (
        line for line in Path(f"/proc/self/fdinfo/{timer.fd}").read_text().splitlines() if line.startswith("it_value: ")
    )
    seconds, nanoseconds = map(int, line.removeprefix("it_value: ").strip("()").split(", "))
    return seconds + nanoseconds / 1e9


def test_timer__fires_at_its_time_and_not_before(timer: TimerFd) -> None:
    at = time.monotonic() + 0.02
    timer.arm(at)
    assert not readable(timer, within_s=0) or time.monotonic() >= at
    assert readable(timer, within_s=PATIENCE_S)
    assert time.monotonic() >= at


def test_timer__none_disarms(timer: TimerFd) -> None:
    timer.arm(time.monotonic() + 3600)
    timer.arm(0.0)
    assert readable(timer, within_s=PATIENCE_S)
    timer.arm(None)
    assert not readable(timer, within_s=0)


def test_timer__an_earlier_time_replaces_a_later_one(timer: TimerFd) -> None:
    timer.arm(time.monotonic() + 3600)
    timer.arm(time.monotonic() + 0.001)
    assert readable(timer, within_s=PATIENCE_S)


def test_timer__acknowledge_makes_it_unreadable_and_the_same_time_may_be_armed_again(timer: TimerFd) -> None:
    assert not timer.acknowledge(), "nothing has expired"
    at = time.monotonic()
    timer.arm(at)
    assert readable(timer, within_s=PATIENCE_S)
    assert timer.acknowledge()
    assert not readable(timer, within_s=0)
    timer.arm(at)
    assert readable(timer, within_s=PATIENCE_S)


def test_timer__a_later_time_is_set_in_the_kernel_when_the_earlier_one_has_expired(timer: TimerFd) -> None:
    at = time.monotonic() + 0.03
    timer.arm(time.monotonic() + 0.001)
    timer.arm(at)
    assert readable(timer, within_s=PATIENCE_S)
    if time.monotonic() < at:  # on a busy machine it may have expired
        assert not timer.acknowledge()
    assert readable(timer, within_s=PATIENCE_S)
    assert time.monotonic() >= at
    assert timer.acknowledge()


def test_timer__resolution_is_finer_than_a_millisecond(timer: TimerFd) -> None:
    """The kernel's remaining time lies within the times read before and after it, however busy the machine."""
    latest_at = time.monotonic() + 3600
    for microseconds in range(0, 3000, 50):
        at = latest_at - microseconds / 1e6  # earlier each time, as a later one is not set in the kernel
        timer.arm(at)
        before = time.monotonic()
        left_s = remaining_s(timer)
        assert at - time.monotonic() <= left_s + 1e-6
        assert left_s <= at - before + 1e-6
