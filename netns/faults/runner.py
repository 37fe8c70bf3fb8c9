"""Execute a fault schedule (netns/faults/schedule.py) on a lab, in real time."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from itertools import count
from time import monotonic, sleep
from uuid import uuid4

from netns.errors import raise_all
from netns.faults.faults import active, begin, planned, repair
from netns.faults.schedule import ScheduledEvent
from netns.lab.lab import Lab, edit_shapes
from netns.netem.changes import Change, with_change, without_change

Act = Callable[[], None]


class ScheduleRunner:
    """`run` executes a schedule. If it is interrupted, it undoes at once what is still to be undone.

    A caller with a loop of its own calls `begin`, `step` at each `next_at`, and `undo` at the end.
    """

    def __init__(self, lab: Lab, *, on_event: Callable[[float, str], None] = lambda _at_s, _text: None) -> None:
        """`on_event` is called with the seconds since the start and a description, for each event."""
        self._lab = lab
        self._report = on_event
        self._order = count()
        self._started_at = 0.0
        self._pending: list[tuple[float, int, ScheduledEvent | tuple[ScheduledEvent, Act]]] = []

    def run(self, events: Iterable[ScheduledEvent]) -> None:
        """Run until the last event has happened, and has been undone if it should be.

        Raises what an event or its undoing has raised; of several errors one BackendError with all of them.
        """
        self.begin(events, at=monotonic())
        try:
            while (next_at := self.next_at) is not None:
                sleep(max(0.0, next_at - monotonic()))
                self.step()
        except Exception as error:  # noqa: BLE001 - raised again after the undoing
            self._undo_after(error)
        finally:
            self.undo()

    def begin(self, events: Iterable[ScheduledEvent], *, at: float) -> None:
        """Count the times of events from `at` (monotonic)."""
        self._started_at = at
        self._pending = [(event.at_us / 1e6, next(self._order), event) for event in events]
        heapq.heapify(self._pending)

    @property
    def next_at(self) -> float | None:
        """When the next event is due (monotonic); None: there is none."""
        return self._started_at + self._pending[0][0] if self._pending else None

    def step(self) -> None:
        """Execute the next event, or undo one that is over."""
        at_s, _, what = self._pending[0]
        if isinstance(what, ScheduledEvent):
            heapq.heappop(self._pending)
            do, undo = self._prepared(what)
            if what.for_us is not None:  # before the event: then any interruption undoes it
                heapq.heappush(self._pending, (at_s + what.for_us / 1e6, next(self._order), (what, undo)))
            do()
            self._report(monotonic() - self._started_at, str(what))
        else:
            what[1]()
            heapq.heappop(self._pending)  # after the undoing: if it is interrupted, it is repeated
            self._report(monotonic() - self._started_at, f"over: {what[0]}")

    def undo(self) -> None:
        """Undo what is still to be undone, all of it, whatever fails; then raise as `run` does."""
        self._undo_after()

    def _undo_after(self, *errors: Exception) -> None:
        failed = list(errors)
        while self._pending:
            _, _, what = self._pending[-1]
            if not isinstance(what, ScheduledEvent):
                try:
                    what[1]()
                except Exception as error:  # noqa: BLE001 - raised after the others are undone
                    failed.append(error)
            self._pending.pop()  # after the undoing: if it is interrupted, it is repeated
        raise_all(failed)

    def _prepared(self, event: ScheduledEvent) -> tuple[Act, Act]:
        """Return the functions that execute and undo an event."""
        lab, name = self._lab, event.name
        if event.action == "repair":
            return lambda: repair(lab, active(lab, name)), lambda: None
        if event.action == "fail":
            failure = planned(lab, name, carrier=event.carrier)
            return lambda: begin(lab, failure), lambda: repair(lab, [failure])
        key = uuid4().hex
        change = Change.parse(event.shape or {}, base=event.base, key=None if event.for_us is None else key)
        return (
            lambda: edit_shapes(lab, name, lambda shape: with_change(shape, change), direction=event.direction),
            lambda: edit_shapes(lab, name, lambda shape: without_change(shape, key), direction=event.direction),
        )
