"""A worker process as its controller sees it: start, orders, signals, journal, end."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from scripts.benches.torture.journal import entries
from scripts.benches.torture.layout import journal_name
from scripts.benches.torture.plans import EndpointPlan
from scripts.harness.process import ROOT, Process, ProcessGroup, anonymous_bytes, processor_s

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


class UsageSample(NamedTuple):
    at: float
    anonymous_bytes: int
    cpu_s: float


class TortureWorker:
    """One incarnation of a worker; created by `start`."""

    def __init__(
        self, group: ProcessGroup, process: Process, directory: Path, worker: int, *, incarnation: int
    ) -> None:
        self.worker = worker
        self.incarnation = incarnation
        self.process = process
        self.journal = directory / journal_name(worker, incarnation=incarnation)
        self.killed = False
        self.samples: list[UsageSample] = []
        self._group = group
        self._pid: int | None = None
        self._listening: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        who = f"sender {self.worker}" if self.worker else "the receiver"
        return f"{who} (incarnation {self.incarnation})"

    @property
    def running(self) -> bool:
        return self.process.status is None

    @property
    def pid(self) -> int | None:
        """Process id of the worker, from its journal: the worker may be a child of `process`."""
        if self._pid is None:
            self._pid = next((int(each.values[0]) for each in entries(self.journal) if each.kind == "pid"), None)
        return self._pid

    @property
    def listening(self) -> dict[str, Any] | None:
        if self._listening is None and self.worker == 0:
            found = (each.values[0] for each in entries(self.journal) if each.kind == "listening")
            self._listening = next(found, None)
        return self._listening

    def order(self, order: dict[str, Any]) -> None:
        """Send an order; ignored if the process has ended."""
        self.process.write(json.dumps(order).encode() + b"\n")

    def signal(self, number: int) -> None:
        """Send a signal to the worker itself."""
        if self.pid is not None and self.running:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.killed = True
        if self.pid is None:
            self.process.kill()  # the worker has not journalled its pid
        else:
            self.signal(signal.SIGKILL)

    def sample(self) -> None:
        if self.pid is not None and self.running:
            with suppress(OSError):
                self.samples.append(UsageSample(time.time(), anonymous_bytes(self.pid), processor_s(self.pid)))

    @property
    def grown_bytes(self) -> int:
        """Largest growth of anonymous memory since the first sample."""
        sizes = [sample.anonymous_bytes for sample in self.samples]
        return max(sizes) - sizes[0] if sizes else 0

    def end(self) -> str:
        """Kill the worker if it still runs; return its stack."""
        before = len(self.process.errors)
        was_running = self.running
        if was_running:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGUSR1)  # faulthandler
            give_up_at = time.monotonic() + _STACK_S
            while self.running and time.monotonic() < give_up_at:
                self._group.turn(until=give_up_at)
            self.killed = True
            self.signal(signal.SIGKILL)
            self.process.kill()
        self._group.stop(self.process)
        return self.process.errors[before:] if was_running else ""

    def bad_output(self) -> list[str]:
        """Return the worker's output if it contains an error: tracebacks and warnings."""
        text = self.process.errors
        return [text] if any(each in text for each in ERROR_OUTPUT) else []


def start(
    group: ProcessGroup,
    directory: Path,
    worker: int,
    *,
    incarnation: int,
    plan: EndpointPlan,
    part: dict[str, Any],
    command: Callable[[Sequence[str]], list[str]],
) -> TortureWorker:
    """Start a worker; `command` wraps a command line so that it runs at the host of the worker."""
    (directory / f"part.{worker}.{incarnation}.json").write_text(json.dumps(part))
    module = "scripts.benches.torture.worker"
    argv = [sys.executable, "-W", "error", "-m", module, str(directory), str(worker), str(incarnation)]
    if plan.clock_wraps_after_s is not None:
        offset = math.ceil(_WRAP_S - time.monotonic() % _WRAP_S - plan.clock_wraps_after_s)
        argv = ["unshare", "--time", "--monotonic", str(offset), "--fork", "--kill-child", *argv]
    env = environment(directory, compiled=plan.compiled)
    process = group.start(f"worker {worker}", command(argv), env=env)
    return TortureWorker(group, process, directory, worker, incarnation=incarnation)


def environment(directory: Path, *, compiled: bool) -> dict[str, str]:
    """Return the environment of a worker: the installed package or the sources, and keys in `directory`."""
    variables = {**os.environ, "PYTHONSAFEPATH": "1", "SRD_HOME": str(directory)}
    variables.pop("PYTHONPATH", None)
    if not compiled:
        variables["PYTHONPATH"] = str(ROOT)
    return variables
