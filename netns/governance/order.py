"""Who comes first in a cluster queue, and what a workload that was not admitted waits for.

Higher priority, then the older queue timestamp, then the uid; a workload that waits for its preemptions stays the head.
(Kueue: cache/queue/cluster_queue.go, KEP 1282, 9694.)
"""

from __future__ import annotations

from typing import Final

from netns.governance.model import Tried, Workload
from netns.governance.settings import Settings

BOOST: Final = "kueue.x-k8s.io/priority-boost"
_EPSILON_S: Final = 0.001
"""Behind the preemptor; Kueue's."""

IMMEDIATELY: Final = frozenset({"FailedAfterNomination", "PendingPreemption", "PreemptionFailed"})
"""Requeue reasons after which a workload of a BestEffortFIFO queue stays in the heap."""


def priority_of(workload: Workload, settings: Settings) -> int:
    """Return the effective priority."""
    return workload.priority + workload.boost if settings.priority_boost else workload.priority


def timestamp(workload: Workload, settings: Settings) -> float:
    """Return the time by which a workload is queued."""
    evicted = workload.conditions.get("Evicted")
    if evicted is not None and evicted.status:
        if evicted.reason == "PodsReadyTimeout" and settings.requeue_by == "Eviction":
            return evicted.at
        if evicted.reason == "AdmissionCheck":
            return evicted.at
    if not settings.priority_in_cohort:
        preempted = workload.conditions.get("Preempted")
        if preempted is not None and preempted.status and preempted.reason == "InCohortReclaimWhileBorrowing":
            return preempted.at + _EPSILON_S
    return workload.created


def queue_key(workload: Workload, settings: Settings) -> tuple[int, float, str, str]:
    """Return the sort key in a queue, but for stickiness and the usage of local queues."""
    return -priority_of(workload, settings), timestamp(workload, settings), workload.uid, workload.key


def shape(workload: Workload, settings: Settings) -> object:
    """Return what equal workloads have in common: if one does not fit, neither do the others."""
    return (
        tuple(
            (
                each.name, workload.count_of(each), each.min_count, tuple(sorted(each.requests.items())),
                tuple(sorted(each.node_selector.items())), each.affinity, each.tolerations, each.group, each.mode,
                each.level, each.slices,
            )
            for each in workload.podsets
        ),
        priority_of(workload, settings),
    )  # fmt: skip


def stays(reason: str, *, strategy: str, tried: Tried | None) -> bool:
    """Return whether a workload that was not admitted stays in the heap; else it is parked until something changes."""
    if strategy == "StrictFIFO":
        return reason != "NamespaceMismatch" or (tried is not None and tried.pending)
    return reason in IMMEDIATELY or (tried is not None and tried.pending)


def becomes_sticky(reason: str, *, strategy: str) -> bool:
    """Return whether it stays the head, though a higher priority comes."""
    return reason == "PendingPreemption" and strategy == "BestEffortFIFO"


def may_requeue(workload: Workload, now: float) -> bool:
    """Return whether its backoff, if any, is over."""
    requeued = workload.conditions.get("Requeued")
    if requeued is not None and not requeued.status:
        return False
    return workload.requeue_at is None or now >= workload.requeue_at
