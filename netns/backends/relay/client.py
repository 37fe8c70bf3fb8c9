"""The relay client, used by the lab: start the process, send it requests, stop it.

A relay outlives the command that started it, so it is identified by its process id *and* its start time: ids are
reused, and a signal must not reach another process. It is signalled through a pidfd, which cannot refer to another
process between the check and the signal.

A relay does nothing before it reads a line on its standard input, which is written after its process id is recorded.
If the starting process is killed before that, the relay reads the end of its input and exits: no relay runs unrecorded.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from netns.backends.relay.spec import load_spec
from netns.base.unix_sockets import LineClient
from netns.errors import BackendError

START_SECONDS: Final = 10.0
STOP_SECONDS: Final = 2.0
REQUEST_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.005


def start_relay(spec_path: Path, *, log_path: Path, record: Callable[[int], None] = lambda _pid: None) -> int:
    """Start a relay in a session of its own, wait until it replies, return its process id.

    `record` is called with the process id before the relay does anything. Its output goes to `log_path`. Raises
    BackendError with the last line of its log if it exits before it replies, or if it does not reply within
    START_SECONDS. In both cases, and if the wait is interrupted, no process is left running.
    """
    control_path = load_spec(spec_path).control
    start_read_fd, start_write_fd = os.pipe2(os.O_CLOEXEC)
    try:
        pid = _spawn(spec_path, log_path=log_path, start_read_fd=start_read_fd)
    except BaseException:
        os.close(start_write_fd)
        raise
    finally:
        os.close(start_read_fd)
    try:
        try:
            record(pid)
            os.write(start_write_fd, b"\n")
        finally:
            os.close(start_write_fd)
        _await_answer(pid, control_path=control_path, log_path=log_path)
    except BaseException:
        with suppress(ChildProcessError):  # it has exited and was reaped: the id may belong to another process
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        raise
    return pid


def _spawn(spec_path: Path, *, log_path: Path, start_read_fd: int) -> int:
    log = (os.POSIX_SPAWN_OPEN, 1, str(log_path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "netns.backends.relay.relay", str(spec_path)],
        os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # NumPy would start threads that the relay never uses
        file_actions=[(os.POSIX_SPAWN_DUP2, start_read_fd, 0), log, (os.POSIX_SPAWN_DUP2, 1, 2)],
        setsid=True,
    )


def _await_answer(pid: int, *, control_path: Path, log_path: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _answers(control_path, pid=pid):
        if os.waitpid(pid, os.WNOHANG) != (0, 0):
            lines = log_path.read_text().strip().splitlines()
            raise BackendError(lines[-1] if lines else f"the relay ended without output; its log is {log_path}")
        if time.monotonic() > deadline:
            raise BackendError(f"the relay does not answer at {control_path}; its log is {log_path}")
        time.sleep(_POLL_SECONDS)


def stop_relay(pid: int, *, started_at_ticks: int) -> bool:
    """Stop the relay `pid` that started at `started_at_ticks`; return whether it was still running.

    Send SIGTERM first, SIGKILL after STOP_SECONDS. A process with another start time is left alone.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if start_time_ticks(pid) != started_at_ticks:
            return False
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        if not _wait(pidfd, seconds=STOP_SECONDS):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            _wait(pidfd, seconds=STOP_SECONDS)
    except ProcessLookupError:
        return False
    else:
        return True
    finally:
        os.close(pidfd)
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def start_time_ticks(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot; None if it does not exist or is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *rest = stat.rpartition(")")[2].split()  # the command's name, in parentheses, may contain anything
    return None if state == "Z" else int(rest[18])


def request(control_path: Path, message: dict[str, Any]) -> dict[str, Any]:
    """Send one request to a relay and return its reply; BackendError if there is none, or if it is an error."""
    try:
        with LineClient(control_path, timeout_s=REQUEST_SECONDS) as client:
            answer = client.ask_untrusted(message)
    except EOFError:
        raise BackendError(f"the relay at {control_path} ended without an answer") from None
    except OSError as error:
        raise BackendError(f"no relay answers at {control_path}: {error.strerror or error}") from None
    if "error" in answer:
        raise BackendError(answer["error"])
    return answer


def _answers(control_path: Path, *, pid: int) -> bool:
    """Return whether relay `pid` replies, rather than an older one that still listens there."""
    try:
        return bool(request(control_path, {"op": "counters"})["pid"] == pid)
    except BackendError:
        return False


def _wait(pidfd: int, *, seconds: float) -> bool:
    """Wait for the process to end; return whether it did."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
