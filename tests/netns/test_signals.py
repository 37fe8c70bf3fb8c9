"""netns.signals: the first signal raises, once, and not in a deferred block."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from netns.signals import STOPPING_SIGNALS, signals_raise, undisturbed


def kill(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(
    ("number", "raised"),
    [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit), (signal.SIGHUP, SystemExit)],
)
def test_signals_raise__the_first_and_no_other(number: signal.Signals, raised: type[BaseException]) -> None:
    before = {each: signal.getsignal(each) for each in STOPPING_SIGNALS}
    undone: list[signal.Signals] = []

    def work() -> None:
        with signals_raise():
            try:
                kill(number)
            finally:
                for each in STOPPING_SIGNALS:  # during the undoing
                    kill(each)
                    undone.append(each)

    with pytest.raises(raised) as caught:
        work()
    assert undone == list(STOPPING_SIGNALS)
    if isinstance(caught.value, SystemExit):
        assert caught.value.code == 128 + number
    assert {each: signal.getsignal(each) for each in STOPPING_SIGNALS} == before


def test_undisturbed__raises_at_the_end_of_the_outermost() -> None:
    reached: list[str] = []

    def work() -> None:
        with signals_raise():
            try:
                with undisturbed():
                    with undisturbed():
                        kill(signal.SIGTERM)
                        reached.append("inner")
                    reached.append("outer")
                reached.append("never")
            finally:
                with undisturbed():
                    reached.append("undone")

    with pytest.raises(SystemExit):
        work()
    assert reached == ["inner", "outer", "undone"]


def test_undisturbed__an_error_inside_comes_first() -> None:
    def work() -> None:
        with signals_raise(), undisturbed():
            kill(signal.SIGTERM)
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        work()
    with signals_raise(), undisturbed():
        pass  # the signal is not pending any more


def test_in_other_threads_nothing_changes() -> None:
    done = threading.Event()

    def work() -> None:
        with signals_raise(), undisturbed():
            done.set()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done.is_set()
