"""What the daemons (`nitro-card`, `nitro-chip`, `nitro-vpc`, `nitro-volume`) do alike at their start and end."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
from collections.abc import Coroutine
from contextlib import AbstractContextManager, suppress
from typing import Any

from netns.base import logs
from netns.base.output import emit
from nitro_emu.log_ring import RecordFormatter
from srd.sd_notify import sd_notify


def logging_to_stderr(
    *more: logging.Handler, as_json: bool, level: int | str = logging.INFO
) -> AbstractContextManager[None]:
    """Log to stderr, and to `more`, until the end of the block."""
    return logs.logging_to_stderr(RecordFormatter(as_json=as_json), *more, level=level)


def raise_descriptor_limit() -> None:
    """Allow as many descriptors as the system lets this process have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def say_ready(line: str, *, as_json: bool, **fields: object) -> None:
    """Tell systemd and who reads standard output that the daemon serves: a line, or an event with these fields."""
    sd_notify(f"READY=1\nSTATUS={line}")
    if as_json:
        emit("ready", **fields)
    else:
        print(line, flush=True)


async def until_stopped(work: Coroutine[Any, Any, object]) -> None:
    """Do the work of a daemon until it ends, or SIGTERM or SIGINT cancels it; then tell systemd."""
    task = asyncio.ensure_future(work)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with suppress(asyncio.CancelledError):
        await task
    sd_notify("STOPPING=1")
