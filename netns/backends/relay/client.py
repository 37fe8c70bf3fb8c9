"""The relay client, used by the lab: start the process, send it requests.

A relay does nothing before it reads a line on its standard input, which is written after its process id is recorded.
If the starting process is killed before that, the relay reads the end of its input and exits: no relay runs unrecorded.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from netns.backends.relay.spec import load_spec
from netns.base.unix_sockets import LineClient
from netns.errors import BackendError
from netns.processes import start_detached

START_SECONDS: Final = 60.0  # its end is noticed at once; a machine that does much else takes long to start it
REQUEST_SECONDS: Final = 5.0


def start_relay(spec_path: Path, *, log_path: Path, record: Callable[[int], None] = lambda _pid: None) -> int:
    """Start a relay, wait until it replies, return its process id.

    `record` is called with the process id before the relay does anything. Raises what `start_detached` does.
    """
    control_path, _ = load_spec(spec_path)
    start_read_fd, start_write_fd = os.pipe2(os.O_CLOEXEC)

    def begin(pid: int) -> None:
        record(pid)
        os.write(start_write_fd, b"\n")

    try:
        return start_detached(
            ["netns.backends.relay.relay", str(spec_path)],
            what="the relay",
            log_path=log_path,
            stdin_fd=start_read_fd,
            env={"OPENBLAS_NUM_THREADS": "1"},  # NumPy would start threads that the relay never uses
            on_start=begin,
            is_ready=lambda pid: _answers(control_path, pid=pid),
            within_s=START_SECONDS,
        )
    finally:
        os.close(start_read_fd)
        os.close(start_write_fd)


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
