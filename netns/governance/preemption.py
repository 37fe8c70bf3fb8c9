"""Which workloads go so that one fits: a small set, found greedily and then filled back. Not the smallest.

(Kueue: scheduler/preemption/preemption.go; KEP 83, 1337. With fair sharing: fair.py.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from netns.governance.assignment import FlavorAssignment, Grade, Way
from netns.governance.candidates import Candidates, QuotaHolders, still_counts
from netns.governance.fair import fair_targets
from netns.governance.model import ClusterQueue, FlavorResource, Quantities, Workload
from netns.governance.quota import lowest_fit
from netns.governance.state import State
from netns.governance.targets import PreemptionTarget, fill_back, fits, put_back
from netns.governance.topology import fits_by_topology


@dataclass(frozen=True, slots=True)
class Preemptor:
    """Finds targets in a state, which it leaves as it was. Its `simulate` serves the search for flavors."""

    state: State
    now: float
    held: QuotaHolders = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "held", QuotaHolders(self.state, now=self.now))

    def targets(self, workload: Workload, queue: ClusterQueue, made: FlavorAssignment) -> list[PreemptionTarget]:
        """Return who goes for an assignment; none if that does not help."""
        need = {fr: amount for fr, amount in made.usage.items() if amount > 0}
        return self._targets(workload, queue, made.contested, need, lambda: fits_by_topology(self.state, queue, made))

    def simulate(self, workload: Workload, fr: FlavorResource, amount: int) -> Grade:
        """Return whether preemption would make room for one flavor and resource, and the borrowing level then."""
        queue = self.state.queue_of(workload)
        assert queue is not None  # noqa: S101 - it has been nominated
        node = self.state.nodes[queue.name]
        targets = self._targets(workload, queue, frozenset({fr}), {fr: amount}, lambda: True)
        if not targets:
            return Way.NO_CANDIDATES, lowest_fit(node, fr, amount)[0]
        with self.state.without(target.workload for target in targets):
            level = lowest_fit(node, fr, amount)[0]
        own = self.state.holding[queue.name]
        return (Way.PREEMPT if any(each.workload.key in own for each in targets) else Way.RECLAIM), level

    def _targets(
        self,
        workload: Workload,
        queue: ClusterQueue,
        contested: frozenset[FlavorResource],
        need: Quantities,
        placed: Callable[[], bool],
    ) -> list[PreemptionTarget]:
        if self.state.settings.fair_sharing is not None:
            return fair_targets(self.held, workload, queue, contested, need, placed=placed, now=self.now)
        return self._classical(workload, queue, contested, need, placed)

    def _classical(
        self,
        workload: Workload,
        queue: ClusterQueue,
        contested: frozenset[FlavorResource],
        need: Quantities,
        placed: Callable[[], bool],
    ) -> list[PreemptionTarget]:
        state, node = self.state, self.state.nodes[queue.name]
        candidates = Candidates(self.held, workload, queue, contested, need)
        if not candidates:
            return []
        strict = not queue.preemption.while_borrowing
        under = all(node.nominal(fr) > node.usage.get(fr, 0) for fr in contested)
        attempts: tuple[bool, ...] = (True, False)
        if not candidates.elsewhere or (strict and not under):
            attempts = (True,)
        elif strict and not candidates.advantage:
            attempts = (False, True)
        for borrowing in attempts:
            targets: list[PreemptionTarget] = []
            for candidate in candidates:
                if not still_counts(state, candidate, contested, borrowing=borrowing):
                    continue
                state.take(candidate.workload)
                targets.append(PreemptionTarget(candidate.workload, candidate.reason))
                if fits(node, need, borrowing=borrowing) and placed():
                    return fill_back(state, targets, lambda: fits(node, need, borrowing=borrowing) and placed())  # noqa: B023 - used at once
            put_back(state, targets)
        return []
