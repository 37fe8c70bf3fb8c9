"""A worker process as its controller sees it: start, orders, signals, journal, end."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from netns.programs import ending_with_us
from scripts.benches.torture.journal import entries
from scripts.benches.torture.layout import journal_name
from scripts.benches.torture.local import anonymous_bytes
from scripts.benches.torture.plans import EndpointPlan

ROOT: Final = Path(__file__).resolve().parents[3]
_WRAP_S: Final = 2**32 / 1e6
"""Period after which a clock of 32 bits of microseconds wraps."""
_STACK_S: Final = 1.0
ERROR_OUTPUT: Final = (
    "Traceback",
    "was never awaited",
    "never retrieved",
    "Exception ignored",
    "Task was destroyed",
    "Warning:",
    "Fatal Python error",
)
"""Output of a worker that is an error."""


class Process:
    """One incarnation of a worker; created by `start`."""

    def __init__(self, popen: subprocess.Popen[bytes], directory: Path, worker: int, *, incarnation: int) -> None:
        self.worker = worker
        self.incarnation = incarnation
        self.popen = popen
        self.journal = directory / journal_name(worker, incarnation=incarnation)
        self.errors = directory / f"worker.{worker}.{incarnation}.err"
        self.killed = False
        self.peak_bytes = 0
        """Largest sample of anonymous memory."""
        self.first_bytes = 0
        """First sample of anonymous memory."""
        self._pid: int | None = None
        self._listening: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """Name for messages."""
        return f"sender {self.worker}" if self.worker else "the receiver"

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.popen.poll() is None

    @property
    def pid(self) -> int | None:
        """Process id of the worker, from its journal: the worker may be a child of `popen`."""
        if self._pid is None:
            self._pid = next((int(each.values[0]) for each in entries(self.journal) if each.kind == "pid"), None)
        return self._pid

    @property
    def listening(self) -> dict[str, Any] | None:
        """Port and keys of a receiver, once it listens."""
        if self._listening is None and self.worker == 0:
            found = (each.values[0] for each in entries(self.journal) if each.kind == "listening")
            self._listening = next(found, None)
        return self._listening

    def order(self, order: dict[str, Any]) -> None:
        """Send an order; ignored if the process has ended."""
        assert self.popen.stdin is not None  # noqa: S101 - Popen made the pipe
        with suppress(BrokenPipeError):
            self.popen.stdin.write(json.dumps(order).encode() + b"\n")
            self.popen.stdin.flush()

    def signal(self, number: int) -> None:
        """Send a signal to the worker itself."""
        if self.pid is not None and self.running:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it as part of the scenario."""
        self.killed = True
        if self.pid is None:
            self.popen.kill()  # the worker has not journalled its pid; it dies with its parent
        else:
            self.signal(signal.SIGKILL)

    def sample_memory(self) -> None:
        """Sample its anonymous memory."""
        if self.pid is not None and self.running:
            size = anonymous_bytes(self.pid)
            self.first_bytes = self.first_bytes or size
            self.peak_bytes = max(self.peak_bytes, size)

    def end(self) -> str:
        """Kill the worker if it still runs; return its stack."""
        if not self.running:
            return ""
        before = self.errors.stat().st_size
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGUSR1)  # faulthandler
        with suppress(subprocess.TimeoutExpired):
            self.popen.wait(_STACK_S)
        self.killed = True
        self.signal(signal.SIGKILL)
        self.popen.kill()
        self.popen.wait()
        return self.errors.read_bytes()[before:].decode(errors="replace")

    def bad_output(self) -> list[str]:
        """Return the worker's output if it contains an error: tracebacks and warnings."""
        if not self.errors.exists():
            return []
        text = self.errors.read_text(encoding="utf-8", errors="replace")
        return [text] if any(each in text for each in ERROR_OUTPUT) else []

    def close(self) -> None:
        """Close the pipe."""
        if self.popen.stdin is not None:
            with suppress(BrokenPipeError):
                self.popen.stdin.close()


def start(
    directory: Path,
    worker: int,
    *,
    incarnation: int,
    plan: EndpointPlan,
    part: dict[str, Any],
    command: Callable[[Sequence[str]], list[str]],
) -> Process:
    """Start a worker; `command` wraps a command line so that it runs at the host of the worker."""
    (directory / f"part.{worker}.{incarnation}.json").write_text(json.dumps(part))
    module = "scripts.benches.torture.worker"
    argv = [sys.executable, "-W", "error", "-m", module, str(directory), str(worker), str(incarnation)]
    if plan.clock_wraps_after_s is not None:
        offset = math.ceil(_until_wrap_s(time.monotonic()) - plan.clock_wraps_after_s)
        argv = ["unshare", "--time", "--monotonic", str(offset), "--fork", "--kill-child", *argv]
    with (directory / f"worker.{worker}.{incarnation}.err").open("wb") as errors:
        popen = subprocess.Popen(
            ending_with_us(command(argv)),
            stdin=subprocess.PIPE,
            stdout=errors,
            stderr=errors,
            cwd=ROOT,
            env=environment(directory, compiled=plan.compiled),
            start_new_session=True,
        )
    return Process(popen, directory, worker, incarnation=incarnation)


def _until_wrap_s(now: float) -> float:
    return _WRAP_S - now % _WRAP_S


def environment(directory: Path, *, compiled: bool) -> dict[str, str]:
    """Return the environment of a worker: the installed package or the sources, and keys in `directory`."""
    variables = {**os.environ, "PYTHONSAFEPATH": "1", "SRD_HOME": str(directory)}
    variables.pop("PYTHONPATH", None)
    if not compiled:
        variables["PYTHONPATH"] = str(ROOT)
    return variables
