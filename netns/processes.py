"""Processes identified by pid and start time, or by namespace, so that no signal can reach another process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from netns.backends.relay.client import start_time_ticks
from netns.backends.relay.tap import identity_of

GRACE_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.01


@dataclass(frozen=True, slots=True)
class Process:
    """A process, as distinct from a later one with the same pid."""

    pid: int
    started_at_ticks: int

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """Return the process that has `pid` now; None if there is none."""
        ticks = start_time_ticks(pid)
        return None if ticks is None else cls(pid, ticks)

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return start_time_ticks(self.pid) == self.started_at_ticks

    @property
    def command(self) -> str:
        """Its command's name, for messages; empty if it has ended."""
        try:
            return Path(f"/proc/{self.pid}/comm").read_text().strip()
        except OSError:
            return ""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


def processes_in(namespaces: Iterable[str]) -> dict[Process, str]:
    """Return process -> namespace for the processes in these named network namespaces, except for the caller."""
    wanted = {identity: netns for netns in namespaces if (identity := identity_of(netns)) is not None}
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            status = (entry / "ns" / "net").stat()
        except OSError:  # it has ended meanwhile
            continue
        netns = wanted.get((status.st_dev, status.st_ino))
        if netns is not None and (process := Process.of(int(entry.name))) is not None:
            found[process] = netns
    return found


def end(processes: Iterable[Process]) -> None:
    """Send SIGTERM, after GRACE_SECONDS SIGKILL to those that remain; return when all have ended."""
    remaining = [process for process in processes if process.alive]
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        for process in remaining:
            _signal(process, signal_number)
        give_up_at = time.monotonic() + GRACE_SECONDS
        while (remaining := [process for process in remaining if process.alive]) and time.monotonic() < give_up_at:
            time.sleep(_POLL_SECONDS)


def _signal(process: Process, signal_number: signal.Signals) -> None:
    """Send through a pidfd, which cannot refer to another process between the check and the signal."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        if process.alive:
            signal.pidfd_send_signal(pidfd, signal_number)
    except ProcessLookupError:
        return
    finally:
        os.close(pidfd)
