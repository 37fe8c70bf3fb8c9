"""What a condition does to a lab while a cell is measured: its failure plan, and the link that fails under its load."""

from __future__ import annotations

import time

from netns.faults.faults import fail
from netns.faults.runner import ScheduleRunner
from netns.lab.lab import Lab
from srd.compare.counters import Reading
from srd.compare.grid import Condition


class Faults:
    """The faults of one cell. `begin` it; call `step` when something is due, and `arrived` when something arrives."""

    def __init__(self, lab: Lab, condition: Condition) -> None:
        self._lab, self._condition = lab, condition
        self._schedule = ScheduleRunner(lab, on_event=self._happened)
        self._before: Reading | None = None
        self._start_at = 0.0
        self._busiest_failed = False
        self.events: list[tuple[float, str]] = []
        """What happened so far: seconds since the start, and what."""

    def begin(self, *, at: float, since: Reading) -> None:
        """Count times from `at` (monotonic), and what links carry from a reading before any of it."""
        self._start_at, self._before = at, since
        self._schedule.begin(self._condition.events, at=at)

    @property
    def next_at(self) -> float | None:
        """When something is due (monotonic); None: nothing is."""
        return self._schedule.next_at

    def step(self) -> bool:
        """Do the next that is due; return False if nothing is."""
        if self.next_at is None or time.monotonic() < self.next_at:
            return False
        self._schedule.step()
        return True

    def arrived(self, share: float) -> None:
        """Note that the receivers have this share of all bytes."""
        fails_at = self._condition.busiest_link_fails_at
        if fails_at is None or self._busiest_failed or share < fails_at or self._before is None:
            return
        self._busiest_failed = True
        link = Reading.take(self._lab).busiest_link(self._lab, since=self._before)
        fail(self._lab, link)
        self._happened(time.monotonic() - self._start_at, f"fail {link}, which had carried most")

    def untested(self, elapsed_s: float) -> str | None:
        """Return what of the condition came too late to matter to a cell that took so long."""
        happened = [what for at_s, what in self.events if at_s < elapsed_s]
        if self._condition.busiest_link_fails_at is not None and not happened:
            return "all had arrived before the link failed"
        late = [event for event in self._condition.events if event.at_us / 1e6 > elapsed_s]
        return f"all had arrived before {late[0]}" if late else None

    def _happened(self, at_s: float, text: str) -> None:
        self.events.append((round(at_s, 3), text))
