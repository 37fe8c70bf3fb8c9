"""The processes of a cell: one in each host's namespace, which print lines of JSON (srd/compare/worker/__init__.py)."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from netns.children import Child, Children, Output
from netns.errors import BackendError
from netns.lab.lab import Lab
from srd.compare.errors import CellError

WORKER: Final = (sys.executable, "-P", "-m", "srd.compare.worker")
"""Runs the module that is installed beside this one, whatever lies in the working directory."""
FINISH_WITHIN_S: Final = 3.0
SETTLE_S: Final = 0.5
"""Between the end of a killed process's connections and its own: the kernel closes the former first."""

Event = dict[str, Any]


@dataclass(eq=False, slots=True, kw_only=True)
class WorkerProcess(Child):
    """One process."""

    host: str
    events: list[Event] = field(default_factory=list)
    """All that it said so far."""

    @property
    def ended(self) -> bool:
        """Whether its output has ended, errors included."""
        return not self.open_pipes

    def last(self, kind: str) -> Event | None:
        """Return the last event of a kind."""
        return next((event for event in reversed(self.events) if event["event"] == kind), None)

    def say(self, **fields: Any) -> None:
        """Write a line to its stdin."""
        self.write(json.dumps(fields).encode() + b"\n")

    def why_ended(self) -> str:
        """Return in one line why it has ended too early."""
        if (event := self.last("failed")) is not None:
            return f"{self.host}: {event['reason']}"
        return f"{self.host}: {self.last_error or 'the worker has ended'}"


class Workers(Children[WorkerProcess]):
    """All workers of a cell; a context manager that ends them."""

    def __init__(self) -> None:
        super().__init__(self._on_line, grace_s=0)
        self._said: list[tuple[WorkerProcess, Event]] = []
        self.by_host: dict[str, WorkerProcess] = {}

    def start(self, lab: Lab, *, host: str, command: Sequence[str]) -> None:
        """Start the process of a host."""
        self.by_host[host] = self.spawn(lab.command(host, command), become=partial(WorkerProcess, host=host))

    def _on_line(self, worker: WorkerProcess, stream: Output, line: str) -> None:
        if stream == "stdout":
            event: Event = json.loads(line)
            worker.events.append(event)
            self._said.append((worker, event))

    def wait(self, *, until: float) -> list[tuple[WorkerProcess, Event]]:
        """Return what workers said since the last call, at the latest at `until` (monotonic)."""
        self.turn(until=until)
        said, self._said = self._said, []
        return said

    def until_all(self, kind: str, *, within_s: float) -> Mapping[str, Event]:
        """Wait for an event of a kind from each; return it by host. Raises CellError."""
        give_up_at = time.monotonic() + within_s
        while missing := [worker for worker in self.by_host.values() if worker.last(kind) is None]:
            self.check()
            if time.monotonic() >= give_up_at:
                raise CellError(f"{missing[0].host}: not {kind} within {within_s:g} s")
            self.wait(until=give_up_at)
        return {host: worker.last(kind) or {} for host, worker in self.by_host.items()}

    def check(self) -> None:
        """Raise CellError if a worker has failed or ended."""
        for worker in self.by_host.values():
            if worker.ended or worker.last("failed") is not None:
                raise CellError(worker.why_ended())

    def require_not_killed(self) -> None:
        """Raise BackendError if a worker was killed: by the kernel for want of memory, or by hand, never by itself.

        The others may have seen its connections end before it counts as ended, so it is waited for a little.
        """
        workers = self.by_host.values()
        self.turn_while(lambda: any(worker.status is None for worker in workers), within_s=SETTLE_S)
        for worker in workers:
            if worker.status == -signal.SIGKILL:
                raise BackendError(f"{worker.host}: the worker was killed by SIGKILL")

    def finish(self) -> None:
        """Have all account for what they did, while their connections are open; then end their input."""
        workers = self.by_host.values()
        for worker in workers:
            worker.say(account=True)
        self.turn_while(
            lambda: not all(worker.ended or worker.last("account") for worker in workers), within_s=FINISH_WITHIN_S
        )
        for worker in workers:
            worker.end_input()
        self.turn_while(lambda: not all(worker.ended for worker in workers), within_s=FINISH_WITHIN_S)
