"""The log of a command on stderr, by Python's `logging`: one printable line for each record."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from netns.base.printable import printable


def line_of(record: logging.LogRecord) -> str:
    """Return a record's message as one line, with its exception, but without the trace."""
    text = record.getMessage()
    if record.exc_info and (error := record.exc_info[1]) is not None:
        text = f"{text}: {type(error).__name__}: {error}"
    return printable(text)


class _StderrHandler(logging.StreamHandler[Any]):
    """A stderr without a reader ends no daemon."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - as in logging
        """Drop the record: there is nobody to tell."""


@contextmanager
def logging_to_stderr(
    formatter: logging.Formatter, *more: logging.Handler, level: int | str, logger: str | None = None
) -> Iterator[None]:
    """Log to what is stderr now, and to `more`, until the end of the block.

    `level`: the least that is logged, of the loggers below `logger`; of others what they have, by default warnings.
    """
    root, own, handler = logging.getLogger(), logging.getLogger(logger), _StderrHandler(sys.stderr)
    handler.setFormatter(formatter)
    before = own.level
    own.setLevel(level)
    for each in (*more, handler):
        root.addHandler(each)
    try:
        yield
    finally:
        for each in (*more, handler):
            root.removeHandler(each)
        own.setLevel(before)
