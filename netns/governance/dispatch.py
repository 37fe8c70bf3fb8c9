"""Run the jobs of a store: admit, start, preempt, start again, until told to end.

A job is one process, by default `srd-lab run` on the hosts that its admission gives it. A victim gets SIGTERM, and
SIGKILL after the grace; its quota is free when it has ended, and then it waits again. Its environment has
CHECKPOINT_DIR, a directory of its own that outlives it, and RESTART_COUNT: a job that saves there on SIGTERM resumes.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from netns.children import Child, Children, Output
from netns.governance.apply import evict, gone, settle
from netns.governance.cluster import Cluster
from netns.governance.jobs import hosts_of, workload_of
from netns.governance.model import WorkloadCondition
from netns.governance.store import JobRow, JobStore
from netns.inventory.nodes import Node

GRACE_S: Final = 5.0
"""From SIGTERM to SIGKILL of a victim: more than `srd-lab run` itself gives its ranks."""
POLL_S: Final = 0.2
"""Between looks at the store: what `submit` and `cancel` have changed."""

Command = Callable[[JobRow, Sequence[str]], Sequence[str]]
"""The command of a job on hosts."""
Tell = Callable[[str], None]


@dataclass(eq=False, slots=True, kw_only=True)
class RunningJob(Child):
    """The process of a job."""

    row: JobRow
    kill_at: float | None = None
    """When a process that was asked to end is killed; None: it was not asked."""


class Dispatcher:
    """Serves one store. `turn` until it says that nothing is left, or for ever."""

    def __init__(
        self,
        store: JobStore,
        cluster: Cluster,
        nodes: Sequence[Node],
        *,
        command: Command,
        tell: Tell,
        on_line: Callable[[str, Output, str], None],
        grace_s: float = GRACE_S,
    ) -> None:
        self._store, self._command, self._tell, self._grace_s = store, command, tell, grace_s
        self._priorities = cluster.priorities
        self.state = cluster.state(nodes)
        self.children: Children[RunningJob] = Children(
            lambda child, stream, line: on_line(child.row.name, stream, line), grace_s=grace_s
        )
        self._running: dict[str, RunningJob] = {}
        self._rows: dict[str, JobRow] = {}
        again = store.recover(now=time.time())
        if again:
            tell(f"{again} jobs that ran when the last server ended wait again")

    def turn(self) -> bool:
        """Do what is due, and wait a moment; return whether jobs are left."""
        now = time.time()
        self._read(now)
        self.state.wake_due(now=now)
        outcomes = settle(self.state, now=now)
        for outcome in outcomes:
            for preempted in outcome.preempted:
                self._tell(
                    f"{_name(preempted.workload)}: gives way to {_name(preempted.preemptor)} ({preempted.reason})"
                )
                self._stop(preempted.workload, now)
            for admitted in outcome.admitted:
                self._start(admitted.workload, now)
            for waiting in outcome.waiting:
                if waiting.workload in self.state.workloads and not self.state.workloads[waiting.workload].holds_quota:
                    self._store.explain(self._rows[waiting.workload].id, reason=waiting.reason, message=waiting.message)
        self.children.turn(until=time.monotonic() + POLL_S)
        self._end_late()
        for key, child in list(self._running.items()):
            if child.status is not None:
                self._ended(key, child, time.time())
        return bool(self._rows)

    def _read(self, now: float) -> None:
        """Take on what is new, drop what was cancelled, follow what was drained."""
        live = {f"{row.queue.partition('/')[0]}/{row.name}": row for row in self._store.rows(live=True)}
        for key in self._rows.keys() - live.keys():
            if key not in self._running:
                self.state.forget(key, now=now)
                del self._rows[key]
        for key, row in live.items():
            if key not in self._rows:
                priority = self._priorities.get(row.priority_class, 0)
                self._rows[key] = row
                self.state.submit(
                    workload_of(row.job, key, queue=row.queue, priority=priority, created=row.created), now=now
                )
                if self.state.queue_of(self.state.workloads[key]) is None:
                    self._store.explain(row.id, reason="Misconfigured", message=f"LocalQueue {row.queue} not found")
            elif row.cancelled and key in self._running:
                self._stop(key, now)
        self._drain(self._store.drained(), now)

    def _drain(self, drained: set[str], now: float) -> None:
        for name, queue in self.state.queues.items():
            stop = "HoldAndDrain" if name in drained else "None"
            if queue.stop != stop:
                self.state.queues[name] = replace(queue, stop=stop)
                self.state.wake(name, now=now)
            for key, workload in self.state.holding[name].items() if name in drained else ():
                if not workload.has("Evicted"):
                    evict(self.state, workload, "ClusterQueueStopped", now=now)
                    self._stop(key, now)

    def _start(self, key: str, now: float) -> None:
        row, workload = self._rows[key], self.state.workloads[key]
        assert workload.admission is not None  # noqa: S101 - it was admitted just now
        hosts = hosts_of(workload.admission)
        used = workload.used()
        if not self._store.set_phase(row.id, "running", now=now, reason="Admitted", hosts=hosts, used=used):
            self.state.forget(key, now=now)
            del self._rows[key]
            return
        restarts = self._store.find(str(row.id)).restarts
        directory = self._store.directory(row)
        environment = os.environ | {"CHECKPOINT_DIR": str(directory), "RESTART_COUNT": str(restarts)}
        command = self._command(row, hosts)
        self._running[key] = self.children.spawn(command, become=partial(RunningJob, row=row), env=environment)
        workload.conditions["PodsReady"] = WorkloadCondition(status=True, reason="Started", at=now)
        self._tell(f"{row.name}: {'resumes' if restarts else 'starts'} on {', '.join(hosts) or 'this host'}")

    def _stop(self, key: str, now: float) -> None:
        """Ask a job to end."""
        child = self._running.get(key)
        if child is None or child.kill_at is not None:
            return
        self._store.set_phase(child.row.id, "stopping", now=now, reason="Evicted", hosts=())
        child.signal(signal.SIGTERM)
        child.kill_at = time.monotonic() + self._grace_s

    def _end_late(self) -> None:
        for child in self._running.values():
            if child.kill_at is not None and child.status is None and time.monotonic() >= child.kill_at:
                child.signal(signal.SIGKILL)

    def _ended(self, key: str, child: RunningJob, now: float) -> None:
        del self._running[key]
        row, workload = child.row, self.state.workloads[key]
        cancelled = self._store.find(str(row.id)).cancelled
        if child.status == 0 or cancelled or child.kill_at is None:
            phase = "cancelled" if cancelled else "failed" if child.status else "done"
            message = f"status {child.status}: {child.last_error}" if phase == "failed" else ""
            self._store.set_phase(row.id, phase, now=now, message=message)
            self.state.forget(key, now=now)
            del self._rows[key]
            self._tell(f"{row.name}: {phase}" + (f" ({message})" if message else ""))
            return
        evicted = workload.conditions["Evicted"].reason
        self._tell(f"{row.name}: has ended for now, and waits again")
        if self._store.set_phase(row.id, "pending", now=now, reason=evicted, message="was evicted, and waits again"):
            gone(self.state, workload, now=now)
        else:
            self.state.forget(key, now=now)
            del self._rows[key]


def _name(key: str) -> str:
    return key.rpartition("/")[2]
