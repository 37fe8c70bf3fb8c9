"""The log of a daemon: on stderr, one line for each record, by Python's `logging`."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import AbstractContextManager
from typing import Final

import click

from netns.base import logs
from netns.base.logs import line_of
from netns.base.options import with_options
from srd.cli.options import require_one_of

_PRIORITIES: Final = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3}
"""Of syslog, as systemd's journal takes them in front of a line (sd-daemon(3))."""


log_options: Final = with_options(
    click.option("-v", "--verbose", is_flag=True, help="Log peers, too: who connects, and how each ended."),
    click.option("-q", "--quiet", is_flag=True, help="Log warnings and errors only."),
)
"""`log_level` makes a level of them."""


def log_level(*, verbose: bool, quiet: bool) -> int:
    """Return the level. Raises click.UsageError for both."""
    require_one_of({"--verbose": verbose, "--quiet": quiet})
    return logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO


class NameFormatter(logging.Formatter):
    """`NAME: MESSAGE`, on one line and printable; for systemd's journal with its priority in front."""

    def __init__(self, name: str, *, for_journal: bool) -> None:
        super().__init__()
        self._name = name
        self._for_journal = for_journal

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        priority = f"<{_PRIORITIES.get(record.levelno, 6)}>" if self._for_journal else ""
        return f"{priority}{self._name}: {line_of(record)}"


def journal_reads_stderr() -> bool:
    """Whether stderr is systemd's journal ($JOURNAL_STREAM; systemd.exec(5))."""
    try:
        status = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def logging_to_stderr(name: str, *, level: int) -> AbstractContextManager[None]:
    """Log what has at least this level to stderr, as command `name`, until the end of the block."""
    return logs.logging_to_stderr(NameFormatter(name, for_journal=journal_reads_stderr()), level=level, logger="srd")
