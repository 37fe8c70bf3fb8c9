"""Ending a run by unwinding it: everything that it made lies in context managers."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def unwinding() -> Iterator[None]:
    """Let the first SIGINT, SIGTERM or SIGHUP raise SystemExit(128 + number); a second must not interrupt it."""

    def unwind(number: int, _frame: object) -> NoReturn:
        for each in ENDING:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    previous = {number: signal.signal(number, unwind) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
