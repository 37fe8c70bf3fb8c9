"""The objects: flavors, cluster queues, cohorts, local queues, workloads. Names are Kueue's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from netns.placement.model import Expression, PlacementRequest, TopologyAssignment

UNLIMITED: Final = 2**63 - 1
"""No limit; what is added to it, or taken from it, changes nothing."""

FlavorResource = tuple[str, str]
"""A flavor and a resource: what a quota is of."""
Quantities = dict[FlavorResource, int]


def plus(a: int, b: int) -> int:
    """Return the sum of two amounts."""
    return UNLIMITED if UNLIMITED in (a, b) else min(a + b, UNLIMITED)


def minus(a: int, b: int) -> int:
    """Return the difference of two amounts."""
    if a == UNLIMITED:
        return 0 if b == UNLIMITED else UNLIMITED
    return a - b


@dataclass(frozen=True, slots=True)
class Quota:
    """What a queue or cohort has of one flavor and resource."""

    nominal: int = 0
    borrowing_limit: int | None = None
    """The most beyond nominal; None: no limit."""

    lending_limit: int | None = None
    """The most that others may use; None: all."""


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """Resources that are of one flavor together, and the flavors in the order of preference (resourceGroup)."""

    resources: tuple[str, ...]
    flavors: tuple[tuple[str, Mapping[str, Quota]], ...]
    """Name, and quotas by resource."""


@dataclass(frozen=True, slots=True)
class Preemption:
    """Whom a queue's workloads may preempt: Never, LowerPriority, LowerOrNewerEqualPriority (within), Any (reclaim)."""

    within_queue: str = "Never"
    reclaim: str = "Never"
    """reclaimWithinCohort."""

    while_borrowing: bool = False
    """borrowWithinCohort.policy LowerPriority."""

    threshold: int | None = None
    """borrowWithinCohort.maxPriorityThreshold."""


@dataclass(frozen=True, slots=True)
class Fungibility:
    """When the search for a flavor ends."""

    when_can_borrow: str = "MayStopSearch"
    when_can_preempt: str = "TryNextFlavor"
    preference: str = "BorrowingOverPreemption"


@dataclass(frozen=True, slots=True)
class ClusterQueue:
    """A queue with quotas."""

    name: str
    cohort: str | None = None
    groups: tuple[ResourceGroup, ...] = ()
    strategy: str = "BestEffortFIFO"
    preemption: Preemption = Preemption()
    fungibility: Fungibility = Fungibility()
    weight: float = 1.0
    namespace_selector: tuple[Expression, ...] | None = ()
    """What holds of the labels of the namespaces; (): of all; None: of none."""

    by_usage: bool = False
    """UsageBasedAdmissionFairSharing between its local queues."""

    checks: tuple[str, ...] = ()
    """Admission checks that must be ready before a workload starts."""

    stop: str = "None"
    """None, Hold or HoldAndDrain."""

    def group_of(self, resource: str) -> ResourceGroup | None:
        """Return the group that covers a resource."""
        return next((group for group in self.groups if resource in group.resources), None)


@dataclass(frozen=True, slots=True)
class Cohort:
    """Queues and cohorts that lend to each other."""

    name: str
    parent: str | None = None
    groups: tuple[ResourceGroup, ...] = ()
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class LocalQueue:
    """A namespace's door to a cluster queue."""

    key: str
    """namespace/name."""

    cluster_queue: str
    weight: float = 1.0
    stop: str = "None"


@dataclass(frozen=True, slots=True)
class PodSetAdmission:
    """What a pod set got."""

    name: str
    count: int
    flavors: Mapping[str, str]
    """By resource."""

    usage: Mapping[str, int]
    """By resource, of all its pods."""

    topology: TopologyAssignment | None = None


@dataclass(frozen=True, slots=True)
class Admission:
    """What a workload got, and of which queue."""

    cluster_queue: str
    podsets: tuple[PodSetAdmission, ...]


@dataclass(frozen=True, slots=True)
class WorkloadCondition:
    """A fact about a workload, since `at`."""

    status: bool
    reason: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Tried:
    """How far the search for flavors has come: it goes on behind that."""

    indexes: tuple[Mapping[str, int], ...]
    """By pod set and resource, the last flavor looked at; -1: it was the last of its group."""

    shape: object

    @property
    def pending(self) -> bool:
        """Whether there are flavors left."""
        return any(index != -1 for each in self.indexes for index in each.values())


@dataclass(slots=True, eq=False)
class Workload:
    """A job as the scheduler sees it."""

    key: str
    """namespace/name."""

    queue: str = ""
    """The key of its local queue."""

    podsets: tuple[PlacementRequest, ...] = ()
    priority: int = 0
    created: float = 0.0
    uid: str = ""
    boost: int = 0
    active: bool = True
    admission: Admission | None = None
    conditions: dict[str, WorkloadCondition] = field(default_factory=dict)
    reclaimable: Mapping[str, int] = field(default_factory=dict)
    """Pods that have ended, by pod set."""

    checks: Mapping[str, str] = field(default_factory=dict)
    """The states of its admission checks."""

    requeue_at: float | None = None
    tried: Tried | None = None
    queue_usage: float | None = None
    """Of its local queue, where the queue is `by_usage`."""

    _used: Quantities | None = None

    @property
    def namespace(self) -> str:
        """The part of its key before the slash."""
        return self.key.rpartition("/")[0]

    @property
    def name(self) -> str:
        """The part of its key behind the slash."""
        return self.key.rpartition("/")[2]

    def has(self, condition: str) -> bool:
        """Return whether a condition is true."""
        found = self.conditions.get(condition)
        return found is not None and found.status

    @property
    def holds_quota(self) -> bool:
        """Whether quota is reserved for it."""
        return self.admission is not None and self.has("QuotaReserved")

    def count_of(self, podset: PlacementRequest) -> int:
        """Return its pods that have not ended."""
        return podset.count - self.reclaimable.get(podset.name, 0)

    def used(self) -> Quantities:
        """Return the quota that it holds."""
        if self._used is None:
            self._used = self._compute_used()
        return self._used

    def changed(self) -> None:
        """Say that its admission, or its reclaimable pods, have changed."""
        self._used = None

    def _compute_used(self) -> Quantities:
        found: Quantities = {}
        if self.admission is None:
            return found
        left = {podset.name: self.count_of(podset) for podset in self.podsets}
        for each in self.admission.podsets:
            count = min(each.count, left.get(each.name, each.count))
            for resource, flavor in each.flavors.items():
                amount = each.usage.get(resource, 0)
                if count < each.count:
                    amount = amount // each.count * count
                found[flavor, resource] = plus(found.get((flavor, resource), 0), amount)
        return found
