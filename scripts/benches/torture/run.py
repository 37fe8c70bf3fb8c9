"""Runs one scenario: starts the processes, injects faults, ends the processes, and compares their journals."""

from __future__ import annotations

import heapq
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from scripts.benches.torture.files import TRANSFER_S, check_files
from scripts.benches.torture.journal import entries
from scripts.benches.torture.layout import ATTACK
from scripts.benches.torture.local import GRACE_S
from scripts.benches.torture.network import Network, network, undo
from scripts.benches.torture.plans import MIB, FaultKind, TimedFault, TortureScenario
from scripts.benches.torture.process import TortureWorker, environment, start
from scripts.benches.torture.reconcile import Reconciler, leftovers
from scripts.benches.torture.result import TortureResult
from scripts.harness.errors import BenchError
from scripts.harness.process import Process, ProcessGroup
from scripts.harness.steps import step
from scripts.harness.worker import worker as worker_command

START_BOUND_S: Final = 60.0
"""Maximum time of a process start on a busy machine."""
TICK_S: Final = 0.02
SAMPLE_S: Final = 0.2
GROWTH_BYTES: Final = 32 * MIB
"""Maximum growth of a worker's anonymous memory after everything is closed: the heap does not shrink completely."""
PEAK_BYTES: Final = 48 * MIB
"""Maximum growth of a worker's anonymous memory, without regions, while it runs."""
_SHM: Final = Path("/dev/shm")  # noqa: S108 - the run creates a directory in it
"""Target files lie in a tmpfs, so that writes to them cause no disk I/O."""


class _MemoryLimitError(Exception):
    """A worker exceeds PEAK_BYTES; the scenario ends at once."""


class TortureRun:
    def __init__(
        self, scenario: TortureScenario, directory: Path, net: Network, *, group: ProcessGroup, sabotage: str
    ) -> None:
        self.result = TortureResult(scenario)
        self.directory = directory
        self._scenario = scenario
        self._group = group
        self._network = net
        self._sabotage = sabotage
        self.workers: list[TortureWorker] = []
        self._current: dict[int, TortureWorker] = {}
        self._attackers: list[Process] = []
        self._event_queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._sampled_at = 0.0
        self._undo: list[Callable[[], None]] = []

    # -- lifecycle --------------------------------------------------------------------------------------------------

    def run(self) -> TortureResult:
        scenario = self._scenario
        (self.directory / "scenario.json").write_bytes(TypeAdapter(TortureScenario).dump_json(scenario))
        ended = False
        try:
            self._run_processes()
            ended = True
        except _MemoryLimitError:  # `_check_leaks` reports it; the machine must not run out of memory
            pass
        finally:
            self._clean_up()
        self._check_processes()
        if ended:
            self._check_journals()
        return self.result

    def _run_processes(self) -> None:
        scenario = self._scenario
        self._start(0, incarnation=0)
        for worker in range(1, len(scenario.senders) + 1):
            self._start(worker, incarnation=0)
        self._wait_for_receiver()
        self._order_senders()
        started = time.monotonic()
        for event in scenario.events:
            self._at(started + event.at_s, lambda event=event: self._inject(event))  # type: ignore[misc]
        self._start_attackers()
        if any(attacker.slices for attacker in scenario.attackers):
            self._run_until(lambda: not any(each.status is None for each in self._attackers), bound_s=self._bound_s())
            for worker in range(1, len(scenario.senders) + 1):
                self._current[worker].order({"finish": True})
        self._run_until(lambda: not self._senders_running(), bound_s=self._bound_s())
        self._undo_all()
        self._end_hanging(of=[each for each in self.workers if each.worker])
        self._current[0].order({"finish": True})
        self._run_until(lambda: not self._current[0].running, bound_s=self._end_bound_s())
        self._end_hanging(of=[self._current[0]])

    def _bound_s(self) -> float:
        """Return the time limit of all senders: traffic, last requests, stops and kills."""
        stops = sum(event.seconds for event in self._scenario.events)
        files = (TRANSFER_S + 2 * GRACE_S) * len(self._scenario.files.sizes) if self._scenario.files else 0.0
        return self._scenario.seconds + stops + files + 2 * self._end_bound_s()

    def _end_bound_s(self) -> float:
        plans = [self._scenario.receiver.endpoint, *(each.endpoint for each in self._scenario.senders)]
        return 3 * (max(plan.request_timeout_s for plan in plans) + GRACE_S)

    def _start(self, worker: int, *, incarnation: int) -> None:
        scenario = self._scenario
        port = 0
        if worker == 0 and (before := self._current.get(0)) is not None and before.listening is not None:
            port = before.listening["port"]
        process = start(
            self._group,
            self.directory,
            worker,
            incarnation=incarnation,
            plan=scenario.senders[worker - 1].endpoint if worker else scenario.receiver.endpoint,
            part={
                "host": self._network.receiver,
                "port": port,
                "attackers": self._network.attackers,
                "sabotage": self._sabotage,
            },
            command=lambda argv: self._network.command(worker, argv),
        )
        self.workers.append(process)
        self._current[worker] = process

    def _wait_for_receiver(self) -> None:
        """Wait until the receiver, or its next incarnation if it is killed, listens."""
        give_up_at = time.monotonic() + START_BOUND_S
        while (receiver := self._current[0]).listening is None:
            self._tick()
            if receiver.killed:
                continue
            if not receiver.running or time.monotonic() > give_up_at:
                raise BenchError(f"the receiver does not listen: {receiver.process.errors.strip() or 'no output'}")

    def _order_senders(self) -> None:
        for worker, process in self._current.items():
            if worker:
                process.order(self._current[0].listening or {})

    def _senders_running(self) -> bool:
        return bool(self._event_queue) or any(each.running for worker, each in self._current.items() if worker)

    def _run_until(self, done: Callable[[], bool], *, bound_s: float) -> None:
        give_up_at = time.monotonic() + bound_s
        while not done() and time.monotonic() < give_up_at:
            self._tick()

    def _tick(self) -> None:
        now = time.monotonic()
        while self._event_queue and self._event_queue[0][0] <= now:
            heapq.heappop(self._event_queue)[2]()
        if now >= self._sampled_at + SAMPLE_S:
            self._sampled_at = now
            self._say_how_far()
            for process in self.workers:
                process.sample()
                if process.grown_bytes > PEAK_BYTES:
                    raise _MemoryLimitError
        self._group.turn(until=time.monotonic() + TICK_S)

    def _say_how_far(self) -> None:
        """Say how many slices of an attack that has slices are done: they are most of the time of such a run."""
        if slices := sum(attacker.slices for attacker in self._scenario.attackers):
            done = sum(entry.kind == "sent" for entry in entries(self.directory / ATTACK))
            step(f"{done} of {slices} slices of hostile packets", fraction=done / slices)

    def _at(self, when: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._event_queue, (when, next(self._order), do))

    # -- faults -----------------------------------------------------------------------------------------------------

    def _inject(self, event: TimedFault) -> None:
        process = self._current[event.worker]
        later = time.monotonic() + event.seconds
        match event.what:
            case FaultKind.STOP:
                process.signal(signal.SIGSTOP)
                self._at(later, lambda: process.signal(signal.SIGCONT))
            case FaultKind.KILL if process.killed:
                pass  # the next incarnation has not started
            case FaultKind.KILL:
                process.kill()
                self._at(later, lambda: self._restart(process))
            case _:
                step = self._network.inject(event)
                self._undo.append(step)
                self._at(later, lambda: self._undo_one(step))

    def _restart(self, process: TortureWorker) -> None:
        """Start the next incarnation; a receiver has new keys."""
        process.end()
        self._start(process.worker, incarnation=process.incarnation + 1)
        if process.worker:
            if (
                listening := self._current[0].listening
            ) is not None:  # otherwise the order follows the restart of the receiver
                self._current[process.worker].order(listening)
            return
        self._wait_for_receiver()
        self._order_senders()

    def _undo_one(self, step: Callable[[], None]) -> None:
        if step in self._undo:
            self._undo.remove(step)
            undo(step)

    def _undo_all(self) -> None:
        for do in list(self._undo):
            self._undo_one(do)

    def _start_attackers(self) -> None:
        receiver = self._current[0].listening or {}
        host = len(self._scenario.senders) + 1
        for number, plan in enumerate(self._scenario.attackers):
            source = self._network.attackers[0]
            command = worker_command(
                "scripts.benches.torture.attacker",
                "attack",
                directory=str(self.directory),
                target=[self._network.receiver, receiver["port"]],
                source=source,
                seed=f"{self._scenario.seed}/{number}",
                plan=asdict(plan),
            )
            env = environment(self.directory, compiled=False)
            self._attackers.append(self._group.start("attacker", self._network.command(host, command), env=env))

    # -- the end ----------------------------------------------------------------------------------------------------

    def _end_hanging(self, *, of: list[TortureWorker]) -> None:
        for process in of:
            if stack := process.end():
                self.result.hangs.append(f"{process.name} does not end; its stack:\n{stack}")

    def _clean_up(self) -> None:
        self._undo_all()
        for process in self.workers:
            process.end()
        for attacker in self._attackers:
            attacker.kill()
            self._group.stop(attacker)
            if attacker.errors.strip():
                self.result.disagreements.append(f"an attacker failed: {attacker.errors}")

    def _check_processes(self) -> None:
        result = self.result
        for process in self.workers:
            result.tracebacks += [f"{process.name}:\n{output}" for output in process.bad_output()]
            status = process.process.status
            if status and not process.killed and not process.bad_output():
                result.tracebacks.append(f"{process.name} ended with status {status}")
            self._check_leaks(process)

    def _check_journals(self) -> None:
        result = self.result
        if self._scenario.files:
            check_files(self._scenario, self.directory, result)
            return
        reconciler = Reconciler(result, self.directory)
        for process in sorted(self.workers, key=lambda each: (each.worker == 0, each.incarnation)):
            reconciler.read(process.worker, incarnation=process.incarnation)
        reconciler.reconcile()

    def _check_leaks(self, process: TortureWorker) -> None:
        result = self.result
        grown = process.grown_bytes
        if grown > PEAK_BYTES:
            result.leaks.append(f"{process.name} grew by {grown >> 20} MiB while it ran")
            result.leaked_bytes += grown - PEAK_BYTES
        for anonymous, regions, descriptors in leftovers(process.journal):
            if anonymous > GROWTH_BYTES:
                result.leaks.append(f"{process.name} has grown by {anonymous >> 20} MiB when everything is closed")
                result.leaked_bytes += anonymous - GROWTH_BYTES
            if regions:
                result.leaks.append(f"{process.name} has {regions} bytes of regions mapped when everything is closed")
                result.leaked_bytes += regions
            if descriptors:
                result.leaks.append(f"{process.name} has open descriptors: {descriptors}")
                result.leaked_descriptors += len(descriptors)


@contextmanager
def completed(scenario: TortureScenario, *, sabotage: str = "") -> Iterator[TortureRun]:
    """Run a scenario; its journals are there until the end of the block. Raises BenchError."""
    with (
        tempfile.TemporaryDirectory(
            prefix="srd-torture-", dir=_SHM if _SHM.is_dir() else None, ignore_cleanup_errors=True
        ) as directory,
        network(scenario.network, senders=len(scenario.senders), seed=scenario.seed) as net,
        ProcessGroup() as group,
    ):
        run = TortureRun(scenario, Path(directory), net, group=group, sabotage=sabotage)
        run.run()
        yield run


def run_scenario(scenario: TortureScenario, *, sabotage: str = "") -> TortureResult:
    with completed(scenario, sabotage=sabotage) as run:
        return run.result
