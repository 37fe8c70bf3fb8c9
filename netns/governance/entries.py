"""The heads of one cycle, and who comes first of them.

(Kueue: scheduler/scheduler.go, fair_sharing_iterator.go.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from netns.governance.assignment import FlavorAssignment
from netns.governance.model import ClusterQueue, Quantities, Workload
from netns.governance.order import priority_of, timestamp
from netns.governance.quota import QuotaNode
from netns.governance.settings import Settings
from netns.governance.share import Share, share_of
from netns.governance.state import State
from netns.governance.targets import PreemptionTarget


@dataclass(slots=True)
class QueueHead:
    """The head of a queue, with what it could get."""

    workload: Workload
    queue: ClusterQueue
    made: FlavorAssignment = field(default_factory=FlavorAssignment)
    targets: list[PreemptionTarget] = field(default_factory=list)
    preemptor: bool = False
    """It waits for its preemptions."""


def classical_key(entry: QueueHead, settings: Settings) -> tuple[bool, int, int, float]:
    """Return the sort key without fair sharing."""
    return (
        not (settings.preemptors_first and entry.preemptor),
        entry.made.level,
        -priority_of(entry.workload, settings) if settings.priority_in_cohort else 0,
        timestamp(entry.workload, settings),
    )


def fair_key(
    workload: Workload, settings: Settings, share: Share, requested: Quantities, *, preemptor: bool
) -> tuple[bool, bool, tuple[bool, float], int, float]:
    """Return the sort key within a cohort; `share`: of its child on the workload's path, with the workload."""
    return (
        not (settings.preemptors_first and preemptor),
        settings.prefer_non_borrowing and share.borrows_on(requested),
        share.rank,
        -priority_of(workload, settings) if settings.priority_in_cohort else 0,
        timestamp(workload, settings),
    )


def in_order(entries: list[QueueHead], state: State) -> Iterator[QueueHead]:
    """Yield the entries; with fair sharing, each choice sees what was booked for the ones before."""
    if state.settings.fair_sharing is None:
        yield from sorted(entries, key=lambda entry: classical_key(entry, state.settings))
        return
    waiting = {entry.queue.name: entry for entry in entries}
    while waiting:
        name = next(iter(waiting))
        node = state.nodes[name]
        if node.parent is not None:
            winner = _Tournament(state, waiting).winner(node.root)
            assert winner is not None  # noqa: S101 - this queue's head is in it
            name = winner.queue.name
        yield waiting.pop(name)


class _Tournament:
    """In each cohort the winners of its cohorts and its queues' heads compete, by their shares with the workload."""

    def __init__(self, state: State, waiting: dict[str, QueueHead]) -> None:
        self._state, self._waiting = state, waiting
        self._shares: dict[tuple[str, str], Share] = {}
        """By cohort and queue: of the child of the cohort on the queue's path."""

    def winner(self, cohort: QuotaNode) -> QueueHead | None:
        """Return the winner of a subtree, if there is a head in it."""
        below = [found for child in cohort.children if not child.is_queue and (found := self.winner(child)) is not None]
        own = [self._waiting[child.name] for child in cohort.children if child.is_queue and child.name in self._waiting]
        for entry in own:
            self._weigh(entry)
        return min((*below, *own), key=lambda entry: self._key(entry, cohort), default=None)

    def _weigh(self, entry: QueueHead) -> None:
        node = self._state.nodes[entry.queue.name]
        node.add_all(entry.made.usage)
        share = share_of(node)
        for cohort in node.above():
            self._shares[cohort.name, entry.queue.name] = share
            share = share_of(cohort)
        node.remove_all(entry.made.usage)

    def _key(self, entry: QueueHead, cohort: QuotaNode) -> tuple[bool, bool, tuple[bool, float], int, float]:
        share = self._shares[cohort.name, entry.queue.name]
        return fair_key(entry.workload, self._state.settings, share, entry.made.usage, preemptor=entry.preemptor)
