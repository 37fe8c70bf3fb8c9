"""The log of a daemon: on stderr, one line for each record, by Python's `logging`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click

from netns.base.printable import printable

F = TypeVar("F", bound=Callable[..., Any])
_PRIORITIES: Final = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3}
"""Of syslog, as systemd's journal takes them in front of a line (sd-daemon(3))."""


def log_options(command: F) -> F:
    """Add -v and -q; `log_level` makes a level of them."""
    for option in (
        click.option("-q", "--quiet", is_flag=True, help="Log warnings and errors only."),
        click.option("-v", "--verbose", is_flag=True, help="Log peers, too: who connects, and how each ended."),
    ):
        command = option(command)
    return command


def log_level(*, verbose: bool, quiet: bool) -> int:
    """Return the level. Raises click.UsageError for both."""
    if verbose and quiet:
        raise click.UsageError("--verbose and --quiet exclude each other; give one of them")
    return logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO


class LineFormatter(logging.Formatter):
    """`NAME: MESSAGE`, on one line and printable; for systemd's journal with its priority in front."""

    def __init__(self, name: str, *, for_journal: bool) -> None:
        super().__init__()
        self._name = name
        self._for_journal = for_journal

    def format(self, record: logging.LogRecord) -> str:
        """Return the line. Exceptions are in it without their traces."""
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text = f"{text}: {type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
        priority = f"<{_PRIORITIES.get(record.levelno, 6)}>" if self._for_journal else ""
        return f"{priority}{self._name}: {printable(text)}"


class _StderrHandler(logging.StreamHandler[Any]):
    """Writes to what is stderr now; a stderr without a reader ends no daemon."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - as in logging
        """Drop the record: there is nobody to tell."""


def journal_reads_stderr() -> bool:
    """Whether stderr is systemd's journal ($JOURNAL_STREAM; systemd.exec(5))."""
    try:
        status = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


@contextmanager
def logging_to_stderr(name: str, *, level: int) -> Iterator[None]:
    """Log what has at least this level to stderr, as command `name`, until the end of the block."""
    root, own, handler = logging.getLogger(), logging.getLogger("srd"), _StderrHandler()
    handler.setFormatter(LineFormatter(name, for_journal=journal_reads_stderr()))
    before = own.level
    own.setLevel(level)  # libraries: warnings, as is logging's default
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        own.setLevel(before)
