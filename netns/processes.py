"""Processes that outlive who started them: how they start, and how they end.

They are identified by process id *and* start time, or by namespace: ids are reused, and a signal must not reach another
process. It goes through a pidfd, which cannot refer to another process between the check and the signal.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from netns.backends.relay.tap import identity_of
from netns.errors import BackendError

GRACE_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.01


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process, as distinct from a later one with the same pid."""

    pid: int
    started_at_ticks: int

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
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


def start_time_ticks(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot; None if it does not exist or is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *rest = stat.rpartition(")")[2].split()  # the command's name, in parentheses, may contain anything
    return None if state == "Z" else int(rest[18])


def start_detached(
    module: Sequence[str],
    *,
    what: str,
    log_path: Path,
    is_ready: Callable[[int], bool],
    within_s: float,
    env: Mapping[str, str] | None = None,
    stdin_fd: int | None = None,
    on_start: Callable[[int], None] = lambda _pid: None,
) -> int:
    """Start a module of Python, with its arguments, in a session of its own; return its process id once it is ready.

    Its output goes to `log_path`. `on_start` is called with the process id at once. Raises BackendError with the last
    line of its log if it ends before it is ready, or if it is not ready within `within_s`. In both cases, and if the
    wait is interrupted, no process is left running.
    """
    stdin = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    log = (os.POSIX_SPAWN_OPEN, 1, str(log_path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", *module],
        os.environ | (env or {}),
        file_actions=[
            stdin if stdin_fd is None else (os.POSIX_SPAWN_DUP2, stdin_fd, 0), log, (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )  # fmt: skip
    try:
        on_start(pid)
        _until_ready(pid, what=what, log_path=log_path, is_ready=is_ready, within_s=within_s)
    except BaseException:
        with suppress(ChildProcessError):  # it has exited and was reaped: the id may belong to another process
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        raise
    return pid


def _until_ready(pid: int, *, what: str, log_path: Path, is_ready: Callable[[int], bool], within_s: float) -> None:
    give_up_at = time.monotonic() + within_s
    while not is_ready(pid):
        if os.waitpid(pid, os.WNOHANG) != (0, 0):
            lines = log_path.read_text().strip().splitlines() or [f"{what} ended without output"]
            raise BackendError(lines[-1].removeprefix("srd-lab: "))
        if time.monotonic() > give_up_at:
            raise BackendError(f"{what} does not begin; its log is {log_path}")
        time.sleep(_POLL_SECONDS)


def processes_in(namespaces: Iterable[str]) -> dict[ProcessIdentity, str]:
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
        if netns is not None and (process := ProcessIdentity.of(int(entry.name))) is not None:
            found[process] = netns
    return found


def end(processes: Iterable[ProcessIdentity]) -> None:
    """Send SIGTERM, after GRACE_SECONDS SIGKILL to those that remain; return when all have ended."""
    remaining = [process for process in processes if process.alive]
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        for process in remaining:
            _signal(process, signal_number)
        give_up_at = time.monotonic() + GRACE_SECONDS
        while (remaining := [process for process in remaining if process.alive]) and time.monotonic() < give_up_at:
            time.sleep(_POLL_SECONDS)


def reap(processes: Iterable[ProcessIdentity]) -> None:
    """Have the kernel forget those that have ended and are this process's children."""
    for process in processes:
        with suppress(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)


def _signal(process: ProcessIdentity, signal_number: signal.Signals) -> None:
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
