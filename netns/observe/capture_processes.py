"""Captures of a topology: processes of `srd-lab capture` that run as long as the lab is up."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from netns.errors import BackendError
from netns.processes import Process
from netns.topology.model import Capture

START_S: Final = 10.0
_LOOK_S: Final = 0.01


def start_capture_process(lab: str, capture: Capture, *, log_path: Path) -> Process:
    """Start a capture, in a session of its own; return when it records. BackendError with its message if it fails."""
    overwrite = ["--overwrite"] if capture.overwrite else []
    log = (os.POSIX_SPAWN_OPEN, 1, str(log_path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "netns", "capture", "--lab", lab, capture.link, "-o", capture.file, *overwrite],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), log, (os.POSIX_SPAWN_DUP2, 1, 2)],
        setsid=True,
    )
    try:
        return _recording(pid, log_path=log_path)
    except BaseException:
        with suppress(ChildProcessError):  # it has exited and was reaped
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        raise


def _recording(pid: int, *, log_path: Path) -> Process:
    give_up_at = time.monotonic() + START_S
    while "capturing " not in (log := log_path.read_text()):
        if os.waitpid(pid, os.WNOHANG) != (0, 0):
            lines = log.strip().splitlines()
            raise BackendError(lines[-1].removeprefix("srd-lab: ") if lines else "a capture ended without output")
        if time.monotonic() > give_up_at:
            raise BackendError(f"a capture does not begin; its log is {log_path}")
        time.sleep(_LOOK_S)
    process = Process.of(pid)
    if process is None:
        raise BackendError(f"a capture ended as soon as it had begun; its log is {log_path}")
    return process
