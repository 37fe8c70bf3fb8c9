"""Ending a run by unwinding its context managers, which remove everything that it created."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import click

from netns.signals import signals_raise


@contextmanager
def unwinding() -> Iterator[None]:
    """Let the first SIGINT, SIGTERM or SIGHUP raise SystemExit(128 + number), where nothing may not be interrupted."""
    try:
        with signals_raise():
            yield
    except (KeyboardInterrupt, click.Abort):  # what click makes of it
        raise SystemExit(128 + signal.SIGINT) from None
