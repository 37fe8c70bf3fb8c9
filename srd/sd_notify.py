"""Tell systemd about the state of this process, by the protocol of sd_notify(3), and feed its watchdog."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

_log: Final = logging.getLogger(__name__)


def sd_notify(state: str) -> None:
    """Send the state (READY=1, STOPPING=1 ...), if systemd has started this process; a failure is logged only."""
    name = os.environ.get("NOTIFY_SOCKET", "")
    if not name:
        return
    address = "\0" + name[1:] if name.startswith("@") else name
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
            sender.connect(address)
            sender.send(state.encode())
    except (OSError, ValueError) as error:
        _log.warning("NOTIFY_SOCKET %s: not told %s: %s", name, state, error)


def watchdog_s() -> float | None:
    """Return how long systemd waits for a sign of life (`WatchdogSec=`); None: it expects none of this process."""
    microseconds, process = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not microseconds.isdigit() or not int(microseconds) or (process and process != str(os.getpid())):
        return None
    return int(microseconds) / 1e6


@asynccontextmanager
async def notifying_systemd(status: str) -> AsyncIterator[None]:
    """Report READY now and STOPPING behind the block; within it, feed the watchdog from this loop, if there is one."""
    sd_notify(f"READY=1\nSTATUS={status}")
    interval_s = watchdog_s()
    feeding = None if interval_s is None else asyncio.ensure_future(_feed(interval_s / 2))
    try:
        yield
    finally:
        if feeding is not None:
            feeding.cancel()
        sd_notify("STOPPING=1")


async def _feed(interval_s: float) -> None:
    while True:
        sd_notify("WATCHDOG=1")
        await asyncio.sleep(interval_s)
