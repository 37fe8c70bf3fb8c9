"""Preemption and order with fair sharing: who has the larger share of what is lent gives way, or goes last.

Two strategies, one victim at a time, compare the shares of the two subtrees just below the lowest common cohort:
LessThanOrEqualToFinalShare, the preemptor's new share with the target's after the removal; LessThanInitialShare, with
the target's before it. (Kueue: scheduler/preemption/fairsharing, KEP 1714.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from netns.governance.candidates import FAIR_SHARING, IN_QUEUE, RECLAMATION, QuotaHolders, candidate_key
from netns.governance.model import ClusterQueue, FlavorResource, Quantities, Workload
from netns.governance.quota import QuotaNode
from netns.governance.settings import BOTH_STRATEGIES, FINAL_SHARE
from netns.governance.share import NOTHING, Share, share_of
from netns.governance.state import Amounts, State
from netns.governance.targets import PreemptionTarget, fill_back, put_back


@dataclass(slots=True)
class TargetQueues:
    """Whom to take from next: from the root down, the child with the highest share; a cohort on ties with a queue."""

    state: State
    own: QuotaNode
    candidates: dict[str, list[Workload]]
    """By queue, in order."""

    now: float = 0.0
    dropped: set[str] = field(default_factory=set)
    _done: set[str] = field(default_factory=set)
    """Cohorts without anything left."""

    @classmethod
    def of(cls, state: State, own: QuotaNode, workloads: Sequence[Workload], *, now: float) -> TargetQueues:
        """Group candidates by their queues."""
        found: dict[str, list[Workload]] = {}
        for each in workloads:
            assert each.admission is not None  # noqa: S101 - candidates hold quota
            found.setdefault(each.admission.cluster_queue, []).append(each)
        return cls(state, own, found, now)

    def __iter__(self) -> Iterator[QuotaNode]:
        if self.own.parent is None:
            while self.own.name not in self.dropped and self.candidates.get(self.own.name):
                yield self.own
            return
        root = self.own.root
        while root.name not in self._done:
            found = self._next(root)
            if found is not None:
                yield found

    def pop(self, queue: QuotaNode) -> Workload:
        """Return a queue's first candidate, which then is none any more."""
        return self.candidates[queue.name].pop(0)

    def drop(self, queue: QuotaNode) -> None:
        """Look at a queue no more."""
        self.dropped.add(queue.name)

    def common(self, queue: QuotaNode) -> tuple[QuotaNode, QuotaNode]:
        """Return the preemptor's and the target's subtrees just below the lowest cohort that has both."""
        mine = {id(cohort) for cohort in self.own.above()}
        theirs = queue
        while id(theirs.parent) not in mine:
            assert theirs.parent is not None  # noqa: S101 - they share the root
            theirs = theirs.parent
        own = self.own
        while own.parent is not theirs.parent:
            assert own.parent is not None  # noqa: S101 - likewise
            own = own.parent
        return own, theirs

    def _next(self, cohort: QuotaNode) -> QuotaNode | None:
        queue, queue_share = self._highest_queue(cohort)
        below: QuotaNode | None = None
        below_share = NOTHING
        on_path = {id(each) for each in self.own.above()}
        for child in cohort.children:
            if child.is_queue or child.name in self._done:
                continue
            share = share_of(child)
            if not share.borrowed and id(child) not in on_path:
                self._done.add(child.name)
            elif share.rank >= below_share.rank:
                below, below_share = child, share
        if below is None and queue is None:
            self._done.add(cohort.name)
            return None
        if below is not None and below_share.rank >= queue_share.rank:
            return self._next(below)
        return queue

    def _highest_queue(self, cohort: QuotaNode) -> tuple[QuotaNode | None, Share]:
        best: QuotaNode | None = None
        best_share = NOTHING
        key = candidate_key(self.own.name, self.state.settings, now=self.now, local_usage=False)
        for child in cohort.children:
            if not child.is_queue or child.name in self.dropped:
                continue
            share = share_of(child)
            if (not share.borrowed and child is not self.own) or not self.candidates.get(child.name):
                self.dropped.add(child.name)
            elif best is None or share.rank > best_share.rank:
                best, best_share = child, share
            elif share.rank == best_share.rank and key(self.candidates[child.name][0]) < key(
                self.candidates[best.name][0]
            ):
                best = child
        return best, best_share


@dataclass(slots=True)
class _Search:
    """The search for the targets of one workload."""

    held: QuotaHolders
    node: QuotaNode
    contested: frozenset[FlavorResource]
    need: Quantities
    placed: Callable[[], bool]
    now: float
    targets: list[PreemptionTarget] = field(default_factory=list)
    failed: dict[str, list[Workload]] = field(default_factory=dict)
    """By queue, candidates that the first strategy did not let go."""

    @property
    def state(self) -> State:
        """The state, which is left as it was."""
        return self.held.state

    def fits(self) -> bool:
        """Return whether the workload fits, whose need is counted as used already."""
        self.node.remove_all(self.need)
        fits = self.node.fits(self.need) and self.placed()
        self.node.add_all(self.need)
        return fits

    def remove(self, workload: Workload, reason: str) -> bool:
        """Make a workload a target; return whether it is enough."""
        self.state.take(workload)
        self.targets.append(PreemptionTarget(workload, reason))
        return self.fits()

    def first(self, candidates: dict[str, list[Workload]], *, final: bool) -> bool:
        """One victim at a time, by the first strategy; return whether it is enough."""
        queues = TargetQueues(self.state, self.node, candidates, self.now)
        entitled = self.state.settings.preempt_within_nominal and self.node.within(self.contested)
        for queue in queues:
            if queue is self.node or entitled:
                reason = IN_QUEUE if queue is self.node else RECLAMATION
                if self.remove(queues.pop(queue), reason):
                    return True
                continue
            mine, theirs = queues.common(queue)
            new, here = share_of(mine).rank, queues.candidates[queue.name]
            if final:
                index = self._first_passing(here, queue, lambda used: new <= self._after(used, queue, theirs))  # noqa: B023 - used at once
            else:
                index = 0 if new < share_of(theirs).rank else len(here)
            self.failed.setdefault(queue.name, []).extend(here[:index])
            del here[:index]
            if here and self.remove(queues.pop(queue), FAIR_SHARING):
                return True
        return False

    def second(self) -> bool:
        """Each queue once, by LessThanInitialShare, over what the first strategy did not let go."""
        queues = TargetQueues(self.state, self.node, self.failed, self.now)
        for queue in queues:
            mine, theirs = queues.common(queue)
            workload = queues.pop(queue)
            if share_of(mine).rank < share_of(theirs).rank and self.remove(workload, FAIR_SHARING):
                return True
            queues.drop(queue)
        return False

    def _first_passing(self, here: list[Workload], queue: QuotaNode, passes: Callable[[Quantities], bool]) -> int:
        """Return the index of the first whose amounts pass, or how many there are. Equal amounts are looked at once."""
        known: dict[Amounts, bool] = {}
        for alike, used in self.held.amounts(queue.name, self.contested).items():
            known[alike] = passes(used)
            if known[alike]:
                break
        else:
            return len(here)
        for index, workload in enumerate(here):
            alike = frozenset(workload.used().items())
            if alike not in known:
                known[alike] = passes(workload.used())
            if known[alike]:
                return index
        return len(here)

    def _after(self, used: Quantities, queue: QuotaNode, theirs: QuotaNode) -> tuple[bool, float]:
        """Return the rank of the share of `theirs` without one in `queue` that uses so much."""
        queue.remove_all(used)
        rank = share_of(theirs).rank
        queue.add_all(used)
        return rank


def fair_targets(
    held: QuotaHolders,
    workload: Workload,
    queue: ClusterQueue,
    contested: frozenset[FlavorResource],
    need: Quantities,
    *,
    placed: Callable[[], bool],
    now: float,
) -> list[PreemptionTarget]:
    """Return who goes for a workload; none if that does not help."""
    state, rules = held.state, queue.preemption
    node = state.nodes[queue.name]
    found = {queue.name: held.of_policy(workload, queue.name, rules.within_queue, contested)}
    if node.parent is not None and rules.reclaim != "Never":
        for other in node.root.queues():
            if other is not node and not other.within(contested):
                found[other.name] = held.of_policy(workload, other.name, rules.reclaim, contested)
    candidates = {name: evicted + rest for name, (evicted, rest) in found.items() if evicted or rest}
    if not candidates:
        return []
    strategies = state.settings.fair_sharing or BOTH_STRATEGIES
    search = _Search(held, node, contested, need, placed, now)
    node.add_all(need)
    enough = search.first(candidates, final=strategies[0] == FINAL_SHARE)
    if not enough and len(strategies) > 1:
        enough = search.second()
    node.remove_all(need)
    if not enough:
        put_back(state, search.targets)
        return []
    return fill_back(state, search.targets, lambda: node.fits(need) and placed())
