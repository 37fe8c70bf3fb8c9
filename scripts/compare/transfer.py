"""One transfer, from the start of two processes to an outcome.

The receiver starts first and reports its port; then the sender starts. One loop reads the events of both, records the
receiver's progress, and breaks the fabric when the condition requires it. The time limit starts at the first byte: a
protocol that hangs is stopped, and its progress until then is its result.

The spine that fails is the one that carried most of *this* transfer so far. For a protocol that uses all paths any
spine would do; a protocol with a single path loses that path.
"""

from __future__ import annotations

import time
from typing import Final, Protocol

from scripts.compare.conditions import Condition
from scripts.compare.contestants import Contestant, Ends
from scripts.compare.counters import Reading
from scripts.compare.errors import TransferError
from scripts.compare.evaluate import Ending, Event, Record, evaluate, number
from scripts.compare.fabric import RECEIVER, SENDER, Fabric
from scripts.compare.outcome import Outcome
from scripts.compare.payload import Payload
from scripts.harness.process import ManagedProcess, ProcessSet

LISTEN_BOUND_S: Final = 10.0
FIRST_BYTE_BOUND_S: Final = 10.0
TRANSFER_BOUND_S: Final = 20.0
_EXIT_BOUND_S: Final = 3.0
_TICK_S: Final = 0.05


class Observer(Protocol):
    """An observer of a running transfer."""

    def progress(self, *, seconds: float, byte_count: int) -> None:
        """Handle the receiver's progress: bytes so far, seconds since the first."""

    def blackholed(self, spine: str) -> None:
        """Handle the failure of `spine`."""


class Transfer:
    """One transfer. Make it, `run` it once."""

    def __init__(
        self,
        contestant: Contestant,
        *,
        condition: Condition,
        payload: Payload,
        fabric: Fabric,
        observer: Observer,
        bound_s: float = TRANSFER_BOUND_S,
    ) -> None:
        self._contestant = contestant
        self._condition = condition
        self._payload = payload
        self._fabric = fabric
        self._observer = observer
        self._bound_s = bound_s
        self._children: dict[str, ManagedProcess] = {}
        self._samples: list[tuple[float, int]] = [(0.0, 0)]
        self._first_at: float | None = None
        self._blackhole_at_s: float | None = None
        self._blackholed: str | None = None
        self._before = self._from_first_byte = Reading.take(fabric)

    def run(self) -> Outcome:
        """Run the transfer and return its outcome; a failed transfer has an outcome, too.

        Raises only errors that the contestant did not cause (LabError, CompareError, KeyboardInterrupt).
        """
        self._payload.clear()
        failure = None
        with ProcessSet() as pipes:
            try:
                self._go(pipes)
            except TransferError as error:
                failure = str(error)
            after = Reading.take(self._fabric)
        record = self._record(after, failure=failure)
        try:
            return evaluate(record)
        except TransferError as error:
            return evaluate(self._record(after, failure=str(error)))

    def _go(self, pipes: ProcessSet) -> None:
        ends = Ends(
            sender_address=self._fabric.pinned_address(SENDER, self._fabric.spines[0]),
            receiver_address=self._fabric.address(RECEIVER),
            source=self._payload.source,
            output=self._payload.output,
        )
        self._start(pipes, "receiver", host=RECEIVER, command=self._contestant.receive(ends))
        port = self._wait_for_port(pipes)
        self._start(pipes, "sender", host=SENDER, command=self._contestant.send(ends, port))
        self._watch(pipes)

    def _start(self, pipes: ProcessSet, name: str, *, host: str, command: list[str]) -> None:
        self._children[name] = pipes.add(ManagedProcess.start(name, command=self._fabric.command(host, command)))

    def _wait_for_port(self, pipes: ProcessSet) -> int:
        receiver = self._children["receiver"]
        give_up_at = time.monotonic() + LISTEN_BOUND_S
        while time.monotonic() < give_up_at:
            pipes.wait(until=time.monotonic() + _TICK_S)
            for event in receiver.events:
                if event["event"] == "listening":
                    return int(number(event, "port"))
            if receiver.exit_status is not None:
                receiver.stop()
                raise TransferError(receiver.last_error or f"the receiver ended with status {receiver.exit_status}")
        raise TransferError(f"the receiver did not listen within {LISTEN_BOUND_S:g} s")

    def _watch(self, pipes: ProcessSet) -> None:
        """Read events until both have ended, or a timeout: of the start, of the transfer, or after the other's end."""
        give_up_at = time.monotonic() + FIRST_BYTE_BOUND_S
        exit_at: float | None = None
        while not all(ended := [child.exit_status is not None for child in self._children.values()]):
            now = time.monotonic()
            if exit_at is None and any(ended):
                exit_at = now + _EXIT_BOUND_S
            until = give_up_at if self._first_at is None else self._first_at + self._bound_s
            if now >= min(until, exit_at or until):
                if self._first_at is None and exit_at is None:
                    raise TransferError(f"nothing arrived within {FIRST_BYTE_BOUND_S:g} s")
                return
            pipes.wait(until=min(until, now + _TICK_S))
            for event in self._children["receiver"].fresh():
                if event["event"] == "progress":
                    self._note_progress(event)

    def _note_progress(self, event: Event) -> None:
        seconds, byte_count = number(event, "seconds"), int(number(event, "bytes"))
        if self._first_at is None:
            self._first_at = time.monotonic() - seconds
            self._from_first_byte = Reading.take(self._fabric)
        self._samples.append((seconds, byte_count))
        self._observer.progress(seconds=seconds, byte_count=byte_count)
        at_fraction = self._condition.blackhole_at_fraction
        due = at_fraction is not None and byte_count >= at_fraction * self._payload.byte_count
        if due and self._blackholed is None:
            self._fail_busiest_spine(first_at=self._first_at)

    def _fail_busiest_spine(self, *, first_at: float) -> None:
        path_shares = Reading.take(self._fabric).path_shares(since=self._before)
        spine = self._fabric.spines[path_shares.index(max(path_shares))]
        self._fabric.blackhole(spine)
        self._blackholed, self._blackhole_at_s = spine, time.monotonic() - first_at
        self._observer.blackholed(spine)

    def _record(self, after: Reading, *, failure: str | None) -> Record:
        return Record(
            byte_count=self._payload.byte_count,
            landed_intact=self._payload.landed_intact(),
            sender=self._ending("sender"),
            receiver=self._ending("receiver"),
            progress=tuple(self._samples),
            watched_s=0.0 if self._first_at is None else min(self._bound_s, after.at - self._first_at),
            bound_s=self._bound_s,
            path_shares=after.path_shares(since=self._before),
            relay_cpu_fraction=after.relay_cpu_fraction(since=self._from_first_byte),
            machine_busy_fraction=after.machine_busy_fraction(since=self._from_first_byte),
            stolen_fraction=after.stolen_fraction(since=self._from_first_byte),
            wanted_subflows=len(self._fabric.spines) if self._contestant.subflow_for_each_spine else 0,
            fails_spine=self._condition.blackhole_at_fraction is not None,
            blackholed=self._blackholed,
            blackhole_at_s=self._blackhole_at_s,
            failure=failure,
        )

    def _ending(self, name: str) -> Ending:
        child = self._children.get(name)
        if child is None:
            return Ending(status=None, last_error="", events=())
        return Ending(status=child.exit_status, last_error=child.last_error, events=tuple(child.events))
