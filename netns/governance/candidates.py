"""Who may be preempted for whom, in which order.

Already evicted first; other queues before the own one; lower priority; who got quota later. In the hierarchy the
preemptor has the *advantage* over a candidate if its own side of their common cohort could hold it within its quota.
(Kueue: scheduler/preemption/common, classical.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from typing import Any, Final

from netns.governance.model import ClusterQueue, FlavorResource, Quantities, Workload
from netns.governance.order import priority_of, timestamp
from netns.governance.quota import Node, fit_in_total
from netns.governance.settings import Settings
from netns.governance.state import State

IN_QUEUE: Final = "InClusterQueue"
RECLAMATION: Final = "InCohortReclamation"
WHILE_BORROWING: Final = "InCohortReclaimWhileBorrowing"
FAIR_SHARING: Final = "InCohortFairSharing"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A workload that may be preempted."""

    workload: Workload
    kind: str
    """own, above (advantage), level (only if the preemptor ends up not borrowing), level_borrowing."""

    common: Node | None = None
    """The lowest cohort that has both."""

    @property
    def reason(self) -> str:
        """The reason of its preemption."""
        return {"own": IN_QUEUE, "level_borrowing": WHILE_BORROWING}.get(self.kind, RECLAMATION)


def allowed(preemptor: Workload, candidate: Workload, policy: str, settings: Settings) -> bool:
    """Return whether a policy lets one preempt the other."""
    if policy == "Any":
        return True
    mine, other = priority_of(preemptor, settings), priority_of(candidate, settings)
    if policy == "LowerPriority":
        return mine > other
    if policy == "LowerOrNewerEqualPriority":
        return mine > other or (mine == other and timestamp(preemptor, settings) < timestamp(candidate, settings))
    return False


def candidate_key(own_queue: str, settings: Settings, *, now: float, local_usage: bool) -> Callable[[Workload], Any]:
    """Return the sort key of candidates for a preemptor of `own_queue`."""

    def key(workload: Workload) -> tuple[bool, bool, int, float, str]:
        reserved = workload.conditions.get("QuotaReserved")
        at = reserved.at if reserved is not None and reserved.status else now
        return (
            not workload.has("Evicted"), _queue(workload) == own_queue,
            priority_of(workload, settings), -at, workload.uid,
        )  # fmt: skip

    if not local_usage:
        return key

    def compare(a: Workload, b: Workload) -> int:
        """Between local queues of one queue, the higher usage comes first, before priority."""
        first, second = key(a), key(b)
        if first[:2] == second[:2] and _queue(a) == _queue(b) and a.queue != b.queue:
            used, other = a.queue_usage, b.queue_usage
            if used is not None and other is not None and used != other:
                return -1 if used > other else 1
        return (first > second) - (first < second)

    return cmp_to_key(compare)


def uses(workload: Workload, contested: Collection[FlavorResource]) -> bool:
    """Return whether a workload holds any of these."""
    return any(fr in contested for fr in workload.used())


def of_policy(
    state: State, preemptor: Workload, held: Iterable[Workload], policy: str, contested: Collection[FlavorResource]
) -> list[Workload]:
    """Return those that a policy lets be preempted for what is contested."""
    if policy == "Never":
        return []
    return [each for each in held if uses(each, contested) and allowed(preemptor, each, policy, state.settings)]


def classical(
    state: State,
    preemptor: Workload,
    queue: ClusterQueue,
    contested: Collection[FlavorResource],
    need: Quantities,
    *,
    now: float,
) -> tuple[list[Candidate], bool, bool]:
    """Return the candidates in order; whether some are in other queues; whether there is an advantage over some."""
    within = queue.preemption.within_queue
    own = [
        Candidate(each, "own")
        for each in of_policy(state, preemptor, state.holding[queue.name].values(), within, contested)
    ]
    above, level = _elsewhere(state, preemptor, queue, contested, need)
    key = candidate_key(queue.name, state.settings, now=now, local_usage=state.ledger is not None)
    for each in (above, level, own):
        each.sort(key=lambda candidate: key(candidate.workload))
    evicted, rest = list[Candidate](), list[Candidate]()
    for each in (above, level, own):
        for candidate in each:
            (evicted if candidate.workload.has("Evicted") else rest).append(candidate)
    return evicted + rest, bool(above or level), bool(above)


def _elsewhere(
    state: State, preemptor: Workload, queue: ClusterQueue, contested: Collection[FlavorResource], need: Quantities
) -> tuple[list[Candidate], list[Candidate]]:
    """Walk from the queue's parent to the root: each subtree without the part already seen."""
    node = state.nodes[queue.name]
    above: list[Candidate] = []
    level: list[Candidate] = []
    if node.parent is None or queue.preemption.reclaim == "Never":
        return above, level
    advantage, rest = fit_in_total(node, need)
    seen: Node = node
    for cohort in node.above():
        for other in _borrowers(cohort, seen, contested):
            for each in of_policy(
                state, preemptor, state.holding[other.name].values(), queue.preemption.reclaim, contested
            ):
                kind = "above" if advantage else _level_kind(state, preemptor, each, queue)
                (above if advantage else level).append(Candidate(each, kind, cohort))
        fits, rest = fit_in_total(cohort, rest)
        advantage, seen = advantage or fits, cohort
    return above, level


def _borrowers(cohort: Node, seen: Node, contested: Collection[FlavorResource]) -> Iterable[Node]:
    """Yield the queues below a cohort, without the part seen, that borrow; and so do all cohorts between."""
    for child in cohort.children:
        if child is seen or child.within(contested):
            continue
        if child.is_queue:
            yield child
        else:
            yield from _borrowers(child, seen, contested)


def _level_kind(state: State, preemptor: Workload, candidate: Workload, queue: ClusterQueue) -> str:
    rules = queue.preemption
    theirs, mine = priority_of(candidate, state.settings), priority_of(preemptor, state.settings)
    if not rules.while_borrowing or theirs >= mine:
        return "level"
    return "level" if rules.threshold is not None and theirs > rules.threshold else "level_borrowing"


def still_counts(state: State, candidate: Candidate, contested: Collection[FlavorResource], *, borrowing: bool) -> bool:
    """Return whether a candidate is one by now, in an attempt with or without borrowing."""
    if candidate.kind == "own":
        return True
    if borrowing and candidate.kind == "level":
        return False
    node = state.nodes[_queue(candidate.workload)]
    if node.within(contested):
        return False
    for cohort in node.above():
        if cohort is candidate.common:
            break
        if cohort.within(contested):
            return False
    return True


def _queue(workload: Workload) -> str:
    return "" if workload.admission is None else workload.admission.cluster_queue


def ordered(
    workloads: Sequence[Workload], own_queue: str, settings: Settings, *, now: float, local_usage: bool
) -> list[Workload]:
    """Return candidates in the order of preemption."""
    return sorted(workloads, key=candidate_key(own_queue, settings, now=now, local_usage=local_usage))
