"""Who may be preempted for whom, in which order.

Already evicted first; other queues before the own one; lower priority; who got quota later. In the hierarchy the
preemptor has the *advantage* over a candidate if its own side of their common cohort could hold it within its quota.
(Kueue: scheduler/preemption/common, classical.)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from heapq import merge
from operator import itemgetter
from typing import Any, Final

from netns.governance.model import ClusterQueue, FlavorResource, Quantities, Workload
from netns.governance.order import priority_of, timestamp
from netns.governance.quota import QuotaNode, fit_in_total
from netns.governance.settings import Settings
from netns.governance.state import Amounts, State, Users

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

    common: QuotaNode | None = None
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


class QuotaHolders:
    """The workloads that hold quota, by queue and by what they use, in the order of preemption. For one cycle.

    A state keeps what is known of a queue until a workload there gets or loses its quota, or is evicted; not with
    admission fair sharing, where the order depends on the usage of local queues, too.
    """

    def __init__(self, state: State, *, now: float) -> None:
        self.state = state
        self._key = candidate_key("", state.settings, now=now, local_usage=state.ledger is not None)
        self._keys: dict[str, Any] = {}
        if state.ledger is not None:
            state.candidates.clear()

    def key(self, workload: Workload) -> Any:
        """Return the sort key of a candidate."""
        found = self._keys.get(workload.key)
        if found is None:
            found = self._keys[workload.key] = self._key(workload)
        return found

    def of_policy(
        self, preemptor: Workload, queue: str, policy: str, contested: frozenset[FlavorResource]
    ) -> tuple[list[Workload], list[Workload]]:
        """Return those of a queue that may be preempted for what is contested: evicted ones, and the rest."""
        if policy == "Never":
            return [], []
        users = self._using(queue, contested)
        evicted, rest = users.evicted, users.rest
        settings = self.state.settings
        if policy == "LowerPriority" and self.state.ledger is None:  # they are sorted by priority
            mine = priority_of(preemptor, settings)
            evicted, rest = (
                each[: bisect_left(each, mine, key=lambda workload: priority_of(workload, settings))]
                for each in (evicted, rest)
            )
        elif policy != "Any":
            evicted, rest = (
                [candidate for candidate in each if allowed(preemptor, candidate, policy, settings)]
                for each in (evicted, rest)
            )
        if self.state.removed:
            there = self.state.holding[queue]
            evicted, rest = ([each for each in found if each.key in there] for found in (evicted, rest))
        return evicted, rest

    def amounts(self, queue: str, contested: frozenset[FlavorResource]) -> Mapping[Amounts, Quantities]:
        """Return all that the workloads of a queue use which use what is contested, each once, in their order."""
        users = self._using(queue, contested)
        if users.amounts is None:
            users.amounts = {frozenset(each.used().items()): each.used() for each in (*users.evicted, *users.rest)}
        return users.amounts

    def _using(self, queue: str, contested: frozenset[FlavorResource]) -> Users:
        known = self.state.candidates.setdefault(queue, {})
        found = known.get(contested)
        if found is None:
            held = [*self.state.holding[queue].values(), *self.state.removed_of(queue)]
            if len(contested) > 1:
                of_each = [self._using(queue, frozenset({fr})) for fr in contested]
                keys = {each.key for found in of_each for each in (*found.evicted, *found.rest)}
                users = [each for each in held if each.key in keys]
            else:
                (fr,) = contested
                users = [each for each in held if fr in each.used()]
            users.sort(key=self.key)
            found = known[contested] = Users(
                [each for each in users if each.has("Evicted")], [each for each in users if not each.has("Evicted")]
            )
        return found


@dataclass(slots=True)
class _Source:
    """The candidates of one queue."""

    kind: str
    """own, above or level."""

    parts: tuple[list[Workload], list[Workload]]
    """Those that are evicted already, and the rest."""

    common: QuotaNode | None


class Candidates:
    """All candidates for a workload without fair sharing; they are looked at one by one, and mostly few of them."""

    def __init__(
        self,
        held: QuotaHolders,
        preemptor: Workload,
        queue: ClusterQueue,
        contested: frozenset[FlavorResource],
        need: Quantities,
    ) -> None:
        self._held, self._preemptor, self._queue, self._contested = held, preemptor, queue, contested
        self._sources = list(self._collect(need))
        self.elsewhere = any(each.kind != "own" for each in self._sources)
        """Whether some are in other queues."""
        self.advantage = any(each.kind == "above" for each in self._sources)
        """Whether the preemptor has the advantage over some."""

    def __bool__(self) -> bool:
        return bool(self._sources)

    def __iter__(self) -> Iterator[Candidate]:
        key = self._held.key
        for part in (0, 1):
            for kind in ("above", "level", "own"):
                rows = [
                    [(key(workload), workload, each.common) for workload in each.parts[part]]
                    for each in self._sources
                    if each.kind == kind
                ]
                for _, workload, common in merge(*rows, key=itemgetter(0)):
                    yield Candidate(workload, self._kind(workload) if kind == "level" else kind, common)

    def _collect(self, need: Quantities) -> Iterator[_Source]:
        """Yield the queues: the own one; from its parent to the root, each subtree without the part seen."""
        state, rules = self._held.state, self._queue.preemption
        node = state.nodes[self._queue.name]
        own = self._held.of_policy(self._preemptor, node.name, rules.within_queue, self._contested)
        if any(own):
            yield _Source("own", own, None)
        if node.parent is None or rules.reclaim == "Never":
            return
        advantage, rest = fit_in_total(node, need)
        seen: QuotaNode = node
        for cohort in node.above():
            for other in _borrowers(cohort, seen, self._contested):
                found = self._held.of_policy(self._preemptor, other.name, rules.reclaim, self._contested)
                if any(found):
                    yield _Source("above" if advantage else "level", found, cohort)
            fits, rest = fit_in_total(cohort, rest)
            advantage, seen = advantage or fits, cohort

    def _kind(self, candidate: Workload) -> str:
        rules, settings = self._queue.preemption, self._held.state.settings
        theirs, mine = priority_of(candidate, settings), priority_of(self._preemptor, settings)
        if not rules.while_borrowing or theirs >= mine:
            return "level"
        return "level" if rules.threshold is not None and theirs > rules.threshold else "level_borrowing"


def _borrowers(cohort: QuotaNode, seen: QuotaNode, contested: Collection[FlavorResource]) -> Iterable[QuotaNode]:
    """Yield the queues below a cohort, without the part seen, that borrow; and so do all cohorts between."""
    for child in cohort.children:
        if child is seen or child.within(contested):
            continue
        if child.is_queue:
            yield child
        else:
            yield from _borrowers(child, seen, contested)


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
