"""The processes of a cell: one in each host's namespace, which print lines of JSON (srd/workload/__init__.py).

Each runs in a session of its own, so that a Ctrl-C at the terminal reaches only this process, and each dies with this
process (PR_SET_PDEATHSIG), so that even a kill -9 leaves none.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

from netns.compare.errors import CellError
from netns.errors import BackendError
from netns.lab.lab import Lab
from netns.programs import ending_with_us
from netns.signals import undisturbed

PYTHON: Final = (sys.executable, "-P", "-m")
"""Runs a module that is installed beside this one, whatever lies in the working directory."""
WORKER: Final = (*PYTHON, "srd.workload")
GRACE_S: Final = 3.0
SETTLE_S: Final = 0.5
"""Between the end of a killed process's connections and its own: the kernel closes the former first."""
_READ_BYTES: Final = 1 << 16
_TAIL_BYTES: Final = 4000

Event = dict[str, Any]


@dataclass(slots=True)
class Worker:
    """One process."""

    host: str
    process: subprocess.Popen[bytes]
    events: list[Event] = field(default_factory=list)
    """All that it said so far."""
    partial: bytes = b""
    errors: bytes = b""
    open_pipes: int = 2
    _taken: int = 0

    @property
    def ended(self) -> bool:
        """Whether its output has ended, errors included."""
        return not self.open_pipes

    @property
    def status(self) -> int | None:
        """Exit status; None while it runs. Negative: killed by that signal."""
        return self.process.poll()

    @property
    def last_error(self) -> str:
        """The last line of its stderr; empty if there is none."""
        return (self.errors.decode(errors="replace").strip().splitlines() or [""])[-1]

    def last(self, kind: str) -> Event | None:
        """Return the last event of a kind."""
        return next((event for event in reversed(self.events) if event["event"] == kind), None)

    def fresh(self) -> list[Event]:
        """Return what it said since the last call."""
        fresh, self._taken = self.events[self._taken :], len(self.events)
        return fresh

    def say(self, **fields: Any) -> None:
        """Write a line to its stdin."""
        assert self.process.stdin is not None  # noqa: S101 - Popen made it
        with suppress(BrokenPipeError):  # it has ended, which its output says
            self.process.stdin.write(json.dumps(fields).encode() + b"\n")
            self.process.stdin.flush()

    def why_ended(self) -> str:
        """Return in one line why it has ended too early."""
        if (event := self.last("failed")) is not None:
            return f"{self.host}: {event['reason']}"
        return f"{self.host}: {self.last_error or 'the worker has ended'}"


class Hosts:
    """All workers of a cell; a context manager that ends them."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self.workers: dict[str, Worker] = {}

    def start(self, lab: Lab, *, host: str, command: Sequence[str]) -> None:
        """Start the process of a host."""
        with undisturbed():
            process = subprocess.Popen(
                ending_with_us(lab.command(host, command)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            worker = self.workers[host] = Worker(host, process)
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None  # noqa: S101 - Popen made it
            self._selector.register(pipe, selectors.EVENT_READ, worker)

    def wait(self, *, until: float) -> list[tuple[Worker, Event]]:
        """Return what workers said, at the latest at `until` (monotonic)."""
        said: list[tuple[Worker, Event]] = []
        for key, _ in self._selector.select(max(0.0, until - time.monotonic())):
            worker: Worker = key.data
            data = os.read(key.fd, _READ_BYTES)
            if not data:
                self._selector.unregister(key.fileobj)
                worker.open_pipes -= 1
            elif key.fileobj is worker.process.stderr:
                worker.errors = (worker.errors + data)[-_TAIL_BYTES:]
            else:
                *lines, worker.partial = (worker.partial + data).split(b"\n")
                events: list[Event] = [json.loads(line) for line in lines]
                worker.events += events
                said += [(worker, event) for event in events]
        return said

    def until_all(self, kind: str, *, within_s: float) -> Mapping[str, Event]:
        """Wait for an event of a kind from each; return it by host. Raises CellError."""
        give_up_at = time.monotonic() + within_s
        while missing := [worker for worker in self.workers.values() if worker.last(kind) is None]:
            self.check()
            if time.monotonic() >= give_up_at:
                raise CellError(f"{missing[0].host}: not {kind} within {within_s:g} s")
            self.wait(until=give_up_at)
        return {host: worker.last(kind) or {} for host, worker in self.workers.items()}

    def check(self) -> None:
        """Raise CellError if a worker has failed or ended."""
        for worker in self.workers.values():
            if worker.ended or worker.last("failed") is not None:
                raise CellError(worker.why_ended())

    def require_not_killed(self) -> None:
        """Raise BackendError if a worker was killed: by the kernel for want of memory, or by hand, never by itself.

        The others may have seen its connections end before it counts as ended, so it is waited for a little.
        """
        settled_at = time.monotonic() + SETTLE_S
        for worker in self.workers.values():
            with suppress(subprocess.TimeoutExpired):
                worker.process.wait(max(settled_at - time.monotonic(), 0))
            if worker.status == -signal.SIGKILL:
                raise BackendError(f"{worker.host}: the worker was killed by SIGKILL")

    def finish(self) -> None:
        """End the input of all, and read what they say last."""
        for worker in self.workers.values():
            if worker.process.stdin is not None:
                with suppress(BrokenPipeError):
                    worker.process.stdin.close()
        self._read_on(self.workers.values())

    def stop(self) -> None:
        """Tell all that still run to end (SIGTERM), the last one first, and read what they say last."""
        for worker in reversed(self.workers.values()):
            if worker.status is None:
                worker.process.terminate()
            self._read_on([worker])
            with suppress(subprocess.TimeoutExpired):
                worker.process.wait(GRACE_S)

    def _read_on(self, workers: Collection[Worker]) -> None:
        give_up_at = time.monotonic() + GRACE_S
        while not all(worker.ended for worker in workers) and time.monotonic() < give_up_at:
            self.wait(until=give_up_at)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with undisturbed():
            self._selector.close()
            for worker in self.workers.values():
                worker.process.kill()
            for worker in self.workers.values():
                worker.process.wait()
                for pipe in (worker.process.stdin, worker.process.stdout, worker.process.stderr):
                    if pipe is not None:
                        with suppress(BrokenPipeError):
                            pipe.close()
