"""Do what a cycle has decided; and what happens to workloads between cycles: evictions, backoff, readiness."""

from __future__ import annotations

from netns.governance.cycle import CycleOutcome, cycle
from netns.governance.model import Workload, WorkloadCondition
from netns.governance.settings import PodsReady
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
    state.cycles += 1


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


def backoff_s(count: int, ready: PodsReady) -> float:
    """Return how long a workload waits after its eviction number `count`, from 1; without jitter."""
    return min(ready.backoff_base_s * 2.0 ** min(count - 1, 60), ready.backoff_max_s)


def not_ready(state: State, *, now: float) -> list[str]:
    """Evict the admitted workloads whose pods are not ready in time; return their keys.

    Each waits longer the next time; one with too many evictions is deactivated.
    """
    ready = state.settings.pods_ready
    if ready is None:
        return []
    running = [each for held in state.holding.values() for each in held.values() if not each.has("Evicted")]
    late = [each for each in running if _is_late(each, ready, now)]
    for workload in late:
        workload.requeue_count += 1
        if ready.backoff_limit is not None and workload.requeue_count > ready.backoff_limit:
            workload.active = False
            evict(state, workload, "Deactivated", now=now)
            continue
        evict(state, workload, "PodsReadyTimeout", now=now)
        due_at = now + backoff_s(workload.requeue_count, ready)
        workload.requeue_at = max(due_at, workload.requeue_at or due_at)
    return [each.key for each in late]


def _is_late(workload: Workload, ready: PodsReady, now: float) -> bool:
    admitted, is_ready = workload.conditions.get("Admitted"), workload.conditions.get("PodsReady")
    if admitted is None or not admitted.status or (is_ready is not None and is_ready.status):
        return False
    if is_ready is not None and is_ready.reason == "Lost":
        return ready.recovery_timeout_s > 0 and now - is_ready.at >= ready.recovery_timeout_s
    return now - admitted.at >= ready.timeout_s


def settle(state: State, *, now: float) -> list[CycleOutcome]:
    """Run cycles until nobody is admitted or preempted and no head gives way to the next; return what they decided."""
    outcomes = []
    while True:
        waiting = sum(len(line.active) for line in state.lines.values())
        outcomes.append(cycle(state, now=now))
        apply(state, outcomes[-1], now=now)
        if not outcomes[-1].progress and waiting == sum(len(line.active) for line in state.lines.values()):
            return outcomes
