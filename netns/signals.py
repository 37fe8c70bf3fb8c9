"""Signals that end a program become exceptions, so that unfinished work is undone as on any error.

    with signals_raise():
        ...
        with undisturbed():
            thread.start()
            thread.join()

The first SIGINT, SIGTERM or SIGHUP raises; later ones are ignored, because they would interrupt the undoing. In an
`undisturbed` block, signals are deferred to its end: between the start of a process or thread and its registration, or
during the wait for it, nothing may be raised, because it would continue to create what is being undone.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Final

STOPPING_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(slots=True)
class _Held:
    depth: int = 0
    signal: int | None = None


_held: Final = _Held()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Defer signals to the end of the block, the outermost if they are nested; they are raised there.

    In other threads than the main one this does nothing, because Python runs handlers in the main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _held.depth += 1
    try:
        yield
    finally:
        _held.depth -= 1  # first: a signal from now on is raised directly
        number = None
        if not _held.depth:
            number, _held.signal = _held.signal, None
    if number is not None:
        raise _stopped_by(number)


@contextmanager
def signals_raise() -> Iterator[None]:
    """Let the first of the signals raise: KeyboardInterrupt, or SystemExit of 128 and the signal's number."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _frame: FrameType | None) -> None:
        for each in STOPPING_SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        if _held.depth:
            _held.signal = number
        else:
            raise _stopped_by(number)

    previous = {number: signal.signal(number, stop) for number in STOPPING_SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _stopped_by(number: int) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)
