"""Signals that end a program become exceptions, so that what is half done is undone as on any error.

    with signals_raise():
        ...
        with undisturbed():
            thread.start()
            thread.join()

The first SIGINT, SIGTERM or SIGHUP raises; later ones are ignored, because they would interrupt the undoing. While
something is `undisturbed` a signal waits for its end: where a process or thread is started and we have yet to know of
it, or to wait for it, nothing may be raised, or it would go on making what is being undone.
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
    """Let a signal wait for the end of the block, the outermost if they are nested; it is raised there.

    In other threads than the main one there is nothing to wait for, as Python runs handlers in that one only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _held.depth += 1
    try:
        yield
    finally:
        _held.depth -= 1  # first: a signal from now on raises by itself
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
