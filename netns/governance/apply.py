"""Do what a cycle has decided; and what happens to workloads between cycles: evictions, and their ends."""

from __future__ import annotations

from netns.governance.cycle import CycleOutcome, cycle
from netns.governance.model import Workload, WorkloadCondition
from netns.governance.state import State


def apply(state: State, outcome: CycleOutcome, *, now: float) -> None:
    """Reserve quota, mark victims, requeue the rest. Victims keep their quota until `gone`."""
    for waiting in outcome.waiting:
        workload = state.workloads[waiting.workload]
        workload.tried = waiting.tried
        workload.conditions["QuotaReserved"] = WorkloadCondition(status=False, reason=waiting.reason, at=now)
        queue = state.queue_of(workload)
        if queue is not None:
            state.lines[queue.name].requeue(workload, waiting.requeue, now=now)
    for admitted in outcome.admitted:
        workload = state.workloads[admitted.workload]
        state.reserve(workload, admitted.admission, now=now)
        needed = state.queues[admitted.admission.cluster_queue].checks
        if all(workload.checks.get(check) == "Ready" for check in needed):
            workload.conditions["Admitted"] = WorkloadCondition(status=True, reason="Admitted", at=now)
    for preempted in outcome.preempted:
        victim = state.workloads[preempted.workload]
        evict(state, victim, "Preempted", now=now)
        victim.conditions["Preempted"] = WorkloadCondition(status=True, reason=preempted.reason, at=now)


def evict(state: State, workload: Workload, reason: str, *, now: float) -> None:
    """Ask a workload to stop. It holds its quota until `gone`."""
    workload.conditions["Evicted"] = WorkloadCondition(status=True, reason=reason, at=now)
    if workload.admission is not None:
        state.reorder(workload.admission.cluster_queue)


def gone(state: State, workload: Workload, *, now: float) -> None:
    """Take the quota of an evicted workload whose pods have ended, and queue it again."""
    state.release(workload, now=now)
    workload.conditions.pop("PodsReady", None)
    state.wait(workload, now=now)


def settle(state: State, *, now: float) -> list[CycleOutcome]:
    """Run cycles until nobody is admitted or preempted and no head gives way to the next; return what they decided."""
    outcomes = []
    while True:
        waiting = sum(len(line.active) for line in state.lines.values())
        outcomes.append(cycle(state, now=now))
        apply(state, outcomes[-1], now=now)
        if not outcomes[-1].progress and waiting == sum(len(line.active) for line in state.lines.values()):
            return outcomes
