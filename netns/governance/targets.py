"""The workloads to be preempted for one: removed one by one, then put back as far as it still fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from netns.governance.model import Quantities, Workload, plus
from netns.governance.quota import QuotaNode
from netns.governance.state import State


@dataclass(frozen=True, slots=True)
class PreemptionTarget:
    """A workload to be preempted, and why."""

    workload: Workload
    reason: str


def fits(node: QuotaNode, need: Quantities, *, borrowing: bool) -> bool:
    """Return whether a queue can use so much more; without `borrowing`, within its nominal quota."""
    return all(
        amount <= node.available(fr) and (borrowing or plus(node.usage.get(fr, 0), amount) <= node.nominal(fr))
        for fr, amount in need.items()
    )


def fill_back(state: State, targets: list[PreemptionTarget], still_fits: Callable[[], bool]) -> list[PreemptionTarget]:
    """Put back whom it does not take, from the last but one to the first; then put back all, and return the rest."""
    kept = list(targets)
    for target in reversed(targets[:-1]):
        state.put(target.workload)
        if still_fits():
            kept[kept.index(target)] = kept[-1]
            kept.pop()
        else:
            state.take(target.workload)
    put_back(state, kept)
    return kept


def put_back(state: State, targets: list[PreemptionTarget]) -> None:
    """Undo the removal of targets."""
    for target in reversed(targets):
        state.put(target.workload)
