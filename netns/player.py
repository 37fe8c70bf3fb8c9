"""Plays a plan (netns/experiment.py) on a lab, in real time."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from itertools import count
from time import monotonic, sleep

from netns.experiment import Event
from netns.lab import Lab
from netns.outage import Failure, active, fail, repair

Undo = Callable[[], None]


class Player:
    """`play` lives through a plan. What is still to be undone when it is interrupted is undone at once."""

    def __init__(self, lab: Lab, *, say: Callable[[float, str], None] = lambda _at_s, _text: None) -> None:
        """`say` is told the seconds since the start, and what happens."""
        self._lab = lab
        self._say = say
        self._order = count()

    def play(self, events: Iterable[Event]) -> None:
        """Live until the last event has happened, and has been undone where it should be."""
        started_at = monotonic()
        agenda: list[tuple[float, int, Event | tuple[Event, Undo]]] = [
            (event.at_us / 1e6, next(self._order), event) for event in events
        ]
        heapq.heapify(agenda)
        try:
            while agenda:
                at_s, _, what = heapq.heappop(agenda)
                sleep(max(0.0, started_at + at_s - monotonic()))
                if isinstance(what, Event):
                    undo = self._do(what)
                    self._say(monotonic() - started_at, str(what))
                    if undo is not None and what.for_us is not None:
                        heapq.heappush(agenda, (at_s + what.for_us / 1e6, next(self._order), (what, undo)))
                else:
                    what[1]()
                    self._say(monotonic() - started_at, f"over: {what[0]}")
        finally:
            for _, _, what in agenda:
                if not isinstance(what, Event):
                    what[1]()

    def _do(self, event: Event) -> Undo | None:
        """Let it happen; what undoes it, where there is something to undo."""
        if event.action == "set":
            return self._set(event)
        if event.action == "repair":
            repair(self._lab, active(self._lab, event.name))
            return None
        failure = fail(self._lab, event.name)
        return lambda: self._end(failure)

    def _end(self, failure: Failure) -> None:
        repair(self._lab, [failure])

    def _set(self, event: Event) -> Undo:
        before = self._lab.change(event.name, event.shape or {}, direction=event.direction, base=event.base)
        return lambda: self._lab.reshape(event.name, **before)
