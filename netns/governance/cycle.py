"""One admission cycle: the head of each queue is nominated alone, then all are admitted in order, as far as they fit.

`cycle` decides and changes nothing; `apply` does what was decided. (Kueue: scheduler/scheduler.go.)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from netns.governance.assignment import FlavorAssignment, Mode
from netns.governance.entries import QueueHead, in_order
from netns.governance.facts import (
    MISCONFIGURED,
    PENDING,
    PENDING_EVALUATION,
    WAITING_FOR_PODS_READY,
    WAITING_FOR_PREEMPTED,
    WAITING_FOR_QUOTA,
    Fact,
)
from netns.governance.flavors import Nominated, Search, still_valid
from netns.governance.model import Admission, ClusterQueue, Quantities, Tried, Workload, minus, plus
from netns.governance.partial import largest_counts
from netns.governance.preemption import Preemptor
from netns.governance.quota import QuotaNode
from netns.governance.state import State
from netns.governance.targets import PreemptionTarget
from netns.governance.topology import fits_by_topology, place


@dataclass(frozen=True, slots=True)
class Admitted:
    """Quota is reserved for a workload."""

    workload: str
    admission: Admission
    level: int
    """The borrowing level."""


@dataclass(frozen=True, slots=True)
class Preempted:
    """A workload is to give way; one that is evicted already is not named again."""

    workload: str
    reason: str
    """InClusterQueue, InCohortReclamation, InCohortReclaimWhileBorrowing or InCohortFairSharing."""

    preemptor: str


@dataclass(frozen=True, slots=True)
class WaitingHead:
    """A head goes on waiting."""

    workload: str
    reason: str
    """Of QuotaReserved=False."""

    message: str
    requeue: str
    """Kueue's requeue reason: Generic, FailedAfterNomination, PendingPreemption, NoFit, PreemptionNoCandidates,
    NamespaceMismatch."""

    facts: dict[str, tuple[Fact, ...]] = field(default_factory=dict)
    """By pod set."""

    tried: Tried | None = None


@dataclass(slots=True)
class CycleOutcome:
    """What one cycle has decided."""

    admitted: list[Admitted] = field(default_factory=list)
    preempted: list[Preempted] = field(default_factory=list)
    waiting: list[WaitingHead] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    """By queue, preemptions that were not issued as others came first."""

    @property
    def progress(self) -> bool:
        """Whether anything was admitted or preempted."""
        return bool(self.admitted or self.preempted)


def cycle(state: State, *, now: float) -> CycleOutcome:
    """Return what is decided for the heads of all active queues. The state is left as it was."""
    run = _Cycle(state, now)
    entries = run.nominate()
    with run.restored():
        for entry in in_order(entries, state):
            run.process(entry)
    return run.outcome


def reserved_amounts(made: FlavorAssignment, node: QuotaNode) -> Quantities:
    """Return what is booked for a workload that must preempt and cannot, so that a lower one does not slip in."""
    if made.mode != Mode.PREEMPT:
        return dict(made.usage)
    found: Quantities = {}
    for fr, amount in made.usage.items():
        quota, used = node.quotas.get(fr), node.usage.get(fr, 0)
        if made.level > 0:
            limit = None if quota is None else quota.borrowing_limit
            found[fr] = amount if limit is None else min(amount, minus(plus(node.nominal(fr), limit), used))
        else:
            found[fr] = max(0, min(amount, minus(node.nominal(fr), used)))
    return found


_DEFERRED = (
    "Workload has overlapping preemption targets with another workload, but will fit after these preemptions complete"
)


class _Cycle:
    def __init__(self, state: State, now: float) -> None:
        self.state, self.now = state, now
        self.outcome = CycleOutcome()
        self._preemptor = Preemptor(state, now)
        self._claimed: dict[str, Workload] = {}
        """The victims of this cycle."""
        self._booked: list[tuple[QuotaNode, Quantities]] = []
        self._placed: list[tuple[Workload, Admission]] = []
        self._blocked = state.settings.block_admission and _some_not_ready(state)

    def nominate(self) -> list[QueueHead]:
        """Return the heads with what each could get alone; those that are refused wait."""
        state, entries = self.state, []
        for name, line in state.lines.items():
            queue = state.queues[name]
            by_usage = state.ledger is not None and queue.by_usage
            head = line.head(state.usage_of if by_usage else None)
            if head is None or state.inactive(queue) is not None:
                continue
            refused = _refused(state, queue, head)
            if refused is not None:
                self.outcome.waiting.append(refused)
                continue
            last = head.tried if head.tried is not None and still_valid(head.tried, state, head) else None
            entry = QueueHead(head, queue, preemptor=line.preemptor == head.key)
            entry.made, entry.targets = self._assign(entry, last=last)
            entries.append(entry)
        return entries

    def process(self, entry: QueueHead) -> None:
        """Decide about one head, with what has been booked so far."""
        fits, has_quota = self._fits(entry)
        overlap = any(each.workload.key in self._claimed for each in entry.targets)
        if overlap and self.state.settings.recompute_overlap:
            fits = self._reconsider(entry, without_claimed=True)
            overlap = any(each.workload.key in self._claimed for each in entry.targets)
        elif has_quota and not fits and entry.made.mode != Mode.NO_FIT and self.state.settings.recompute_placement:
            fits = self._reconsider(entry, without_claimed=False)
        mode = entry.made.mode
        if mode == Mode.NO_FIT:
            self._wait(entry, entry.made.reason or PENDING, "NoFit", tried=entry.made.tried)
        elif mode == Mode.PREEMPT and not entry.targets:
            self._wait(entry, WAITING_FOR_QUOTA, "PreemptionNoCandidates", tried=entry.made.tried)
            if entry.queue.preemption.reclaim != "Any" or (self.state.settings.preemptors_first and entry.preemptor):
                self._book(entry, reserved_amounts(entry.made, self.state.nodes[entry.queue.name]))
        elif mode == Mode.DEFERRED:
            self._wait(entry, WAITING_FOR_PREEMPTED, "PendingPreemption", text=_DEFERRED)
            self._book(entry, entry.made.usage)
        elif overlap or not fits:
            text = "overlapping preemption targets with another workload" if overlap else None
            self._skip(entry, mode, text)
        else:
            self._accept(entry, mode)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Take back, at the end, all that was booked."""
        try:
            yield
        finally:
            for node, amounts in reversed(self._booked):
                node.remove_all(amounts)
            for workload, admission in reversed(self._placed):
                self.state.occupy(workload, admission, sign=-1)

    def _assign(
        self, entry: QueueHead, *, last: Tried | None = None, nominated: Nominated | None = None
    ) -> tuple[FlavorAssignment, list[PreemptionTarget]]:
        """Return what a workload could get, whole or partially, and who would have to go."""
        state, workload, queue = self.state, entry.workload, entry.queue
        search = Search(state, workload, queue, self._preemptor.simulate, nominated, last)

        def attempt(counts: list[int] | None) -> tuple[FlavorAssignment, list[PreemptionTarget]]:
            made = search.assign(counts)
            return made, self._preemptor.targets(workload, queue, made) if made.mode == Mode.PREEMPT else []

        def reduced(counts: list[int]) -> tuple[FlavorAssignment, list[PreemptionTarget]] | None:
            found = attempt(counts)
            return found if found[1] or found[0].mode == Mode.FIT else None

        made, targets = attempt(None)
        if not targets and made.mode != Mode.FIT and state.settings.partial_admission:
            made, targets = largest_counts(workload.podsets, reduced) or (made, targets)
        if state.rooms and made.mode == Mode.PREEMPT:
            with state.without(each.workload for each in targets):
                place(state, queue, made, empty=not targets)
        return made, targets

    def _reconsider(self, entry: QueueHead, *, without_claimed: bool) -> bool:
        """Assign anew, of the nominated flavors alone; return whether it fits."""
        nominated = entry.made.flavors()
        with self.state.without(self._claimed.values() if without_claimed else ()):
            entry.made, entry.targets = self._assign(entry, nominated=nominated)
        entry.made.tried = None
        if without_claimed and entry.made.mode == Mode.FIT:
            entry.made.forced = Mode.DEFERRED
        return self._fits(entry)[0]

    def _fits(self, entry: QueueHead) -> tuple[bool, bool]:
        """Return whether quota and places suffice, and quota alone, once all victims, its own included, are gone."""
        node = self.state.nodes[entry.queue.name]
        gone = {**self._claimed, **{each.workload.key: each.workload for each in entry.targets}}
        with self.state.without(gone.values()):
            has_quota = node.fits(entry.made.usage)
            return has_quota and self._has_place(entry), has_quota

    def _has_place(self, entry: QueueHead) -> bool:
        """Return whether the nodes of its placement have the room, or no placement is asked for."""
        if not self._placed or all(each.topology is None for each in entry.made.podsets):
            return True
        if not fits_by_topology(self.state, entry.queue, entry.made):
            return False
        place(self.state, entry.queue, entry.made, empty=False)
        return True

    def _accept(self, entry: QueueHead, mode: Mode) -> None:
        workload, queue = entry.workload, entry.queue
        if mode == Mode.FIT and self._blocked:
            blocked = "waiting for all admitted workloads to be in PodsReady condition"
            self._wait(entry, WAITING_FOR_PODS_READY, "FailedAfterNomination", text=blocked)
            return
        self._claimed |= {each.workload.key: each.workload for each in entry.targets}
        self._book(entry, entry.made.usage)
        if mode == Mode.PREEMPT:
            self.outcome.preempted += [
                Preempted(each.workload.key, each.reason, workload.key)
                for each in entry.targets
                if not each.workload.has("Evicted")
            ]
            text = f"{entry.made.message}. Pending the preemption of {len(entry.targets)} workload(s)"
            self._wait(entry, WAITING_FOR_PREEMPTED, "PendingPreemption", text=text)
            return
        self.outcome.admitted.append(Admitted(workload.key, entry.made.admission(queue.name), entry.made.level))
        self._blocked = self.state.settings.block_admission

    def _book(self, entry: QueueHead, amounts: Quantities) -> None:
        node = self.state.nodes[entry.queue.name]
        node.add_all(amounts)
        self._booked.append((node, dict(amounts)))
        if self.state.rooms:
            admission = entry.made.admission(entry.queue.name)
            self.state.occupy(entry.workload, admission, sign=1)
            self._placed.append((entry.workload, admission))

    def _skip(self, entry: QueueHead, mode: Mode, text: str | None) -> None:
        self.outcome.waiting.append(
            WaitingHead(
                entry.workload.key,
                WAITING_FOR_QUOTA,
                f"Workload has {text}" if text else "Workload no longer fits after processing another workload",
                "FailedAfterNomination",
                tried=entry.made.tried,
            )
        )
        if mode == Mode.PREEMPT:
            self.outcome.skipped[entry.queue.name] = self.outcome.skipped.get(entry.queue.name, 0) + 1

    def _wait(
        self, entry: QueueHead, reason: str, requeue: str, *, text: str | None = None, tried: Tried | None = None
    ) -> None:
        message = entry.made.message if text is None else text
        facts = {} if entry.made.mode == Mode.DEFERRED else entry.made.facts()
        self.outcome.waiting.append(WaitingHead(entry.workload.key, reason, message, requeue, facts, tried))


def _refused(state: State, queue: ClusterQueue, workload: Workload) -> WaitingHead | None:
    """Return why a head is not even nominated."""
    if any(each in ("Retry", "Rejected") for each in workload.checks.values()):
        return WaitingHead(workload.key, PENDING_EVALUATION, "The workload has failed admission checks", "Generic")
    above = [
        f"podset {podset.name}: requests of {resource} must not exceed its limits"
        for podset in workload.podsets
        for resource, limit in podset.limits.items()
        if podset.requests.get(resource, 0) > limit
    ]
    if not state.admits_namespace(queue, workload):
        text = "Workload namespace doesn't match ClusterQueue selector"
        return WaitingHead(workload.key, MISCONFIGURED, text, "NamespaceMismatch")
    if above:
        return WaitingHead(workload.key, MISCONFIGURED, f"resources validation failed: {above[0]}", "Generic")
    return None


def _some_not_ready(state: State) -> bool:
    return any(not each.has("PodsReady") for held in state.holding.values() for each in held.values())
