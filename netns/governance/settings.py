"""What Kueue configures for a whole cluster: fair sharing, readiness of pods, feature gates that change a rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

FINAL_SHARE: Final = "LessThanOrEqualToFinalShare"
INITIAL_SHARE: Final = "LessThanInitialShare"
BOTH_STRATEGIES: Final = (FINAL_SHARE, INITIAL_SHARE)


@dataclass(frozen=True, slots=True)
class UsageSharing:
    """How the usage of local queues is averaged (admission fair sharing)."""

    half_life_s: float = 168 * 3600
    """What was used so long ago counts half; 0: nothing counts."""

    sampling_s: float = 300
    resource_weights: Mapping[str, float] = field(default_factory=dict)
    """By resource; default 1."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The defaults are those of Kueue 0.19."""

    fair_sharing: tuple[str, ...] | None = None
    """The preemption strategies; None: classical, without fair sharing."""

    usage_sharing: UsageSharing | None = None
    block_admission: bool = False
    """Nothing is admitted while an admitted workload is not ready (waitForPodsReady.blockAdmission)."""

    requeue_by: Literal["Eviction", "Creation"] = "Eviction"
    """The place in the queue of a workload evicted by PodsReadyTimeout."""

    partial_admission: bool = True
    priority_boost: bool = False
    priority_in_cohort: bool = True
    """PrioritySortingWithinCohort."""

    preemptors_first: bool = False
    """PrioritizePreemptorWorkloads."""

    prefer_non_borrowing: bool = True
    """FairSharingPrioritizeNonBorrowing."""

    preempt_within_nominal: bool = True
    """FairSharingPreemptWithinNominal."""

    park_equal_shapes: bool = True
    """SchedulingEquivalenceHashing."""

    fungibility: bool = True
    """FlavorFungibility."""

    keep_scan: bool = True
    """FlavorFungibilityPreserveScanProgress."""

    recompute_overlap: bool = True
    """RecomputeAssignmentUponPreemptionTargetsOverlap."""

    recompute_placement: bool = True
    """TASRecomputeAssignmentWithinSchedulingCycle."""

    ignore_undeclared: bool = False
    """A resource that no group of the queue covers needs no quota (quotaCheckStrategy IgnoreUndeclared)."""


GATES: Final[Mapping[str, str]] = {
    "PartialAdmission": "partial_admission",
    "PriorityBoost": "priority_boost",
    "PrioritySortingWithinCohort": "priority_in_cohort",
    "PrioritizePreemptorWorkloads": "preemptors_first",
    "FairSharingPrioritizeNonBorrowing": "prefer_non_borrowing",
    "FairSharingPreemptWithinNominal": "preempt_within_nominal",
    "SchedulingEquivalenceHashing": "park_equal_shapes",
    "FlavorFungibility": "fungibility",
    "FlavorFungibilityPreserveScanProgress": "keep_scan",
    "RecomputeAssignmentUponPreemptionTargetsOverlap": "recompute_overlap",
    "TASRecomputeAssignmentWithinSchedulingCycle": "recompute_placement",
}
"""Kueue's feature gates, and the settings that stand for them."""
