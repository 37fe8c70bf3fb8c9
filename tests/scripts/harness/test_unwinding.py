"""scripts.harness.unwinding: signals end a run as an exception does, but not where it must not be disturbed."""

from __future__ import annotations

import signal

import pytest

from netns.signals import STOPPING_SIGNALS, undisturbed
from scripts.harness.unwinding import unwinding


def interrupted(by: signal.Signals, *, done: list[str]) -> None:
    with unwinding():
        try:
            signal.raise_signal(by)
            done.append("too much")
        finally:
            signal.raise_signal(by)
            done.append("undone")


@pytest.mark.parametrize("number", STOPPING_SIGNALS)
def test_unwinding__the_first_signal_unwinds_and_later_ones_are_ignored(number: signal.Signals) -> None:
    before = {each: signal.getsignal(each) for each in STOPPING_SIGNALS}
    done: list[str] = []
    with pytest.raises(SystemExit) as ended:
        interrupted(number, done=done)
    assert done == ["undone"]
    assert ended.value.code == 128 + number
    assert {each: signal.getsignal(each) for each in STOPPING_SIGNALS} == before


def interrupted_undisturbed(*, done: list[str]) -> None:
    with unwinding():
        with undisturbed():
            signal.raise_signal(signal.SIGTERM)
            done.append("the thread is known")
        done.append("too much")


def test_unwinding__waits_for_the_end_of_what_must_not_be_disturbed() -> None:
    done: list[str] = []
    with pytest.raises(SystemExit):
        interrupted_undisturbed(done=done)
    assert done == ["the thread is known"]
