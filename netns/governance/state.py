"""All that a cycle looks at: the tree of quotas, who holds them, who waits, and which nodes are taken."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from netns.governance.model import (
    Admission,
    ClusterQueue,
    Cohort,
    FlavorResource,
    LocalQueue,
    Quantities,
    Workload,
    WorkloadCondition,
)
from netns.governance.order import BOOST
from netns.governance.pending import Line
from netns.governance.quota import build
from netns.governance.room import Room
from netns.governance.settings import Settings
from netns.governance.usage import UsageLedger
from netns.inventory.nodes import Node as Host
from netns.placement.matching import matches
from netns.placement.model import ResourceFlavor, Term

Amounts = frozenset[tuple[FlavorResource, int]]
"""What a workload uses, as a key."""


@dataclass(slots=True)
class Users:
    """Workloads of one queue in the order of preemption."""

    evicted: list[Workload]
    """They have been asked to stop already."""

    rest: list[Workload]
    amounts: dict[Amounts, Quantities] | None = None
    """All that they use, each once, if somebody has asked."""


class State:
    """Changed by its methods and by `apply`; `cycle` leaves it as it was."""

    def __init__(
        self,
        settings: Settings,
        *,
        flavors: Iterable[ResourceFlavor],
        queues: Sequence[ClusterQueue],
        cohorts: Iterable[Cohort] = (),
        local_queues: Iterable[LocalQueue] = (),
        namespaces: Mapping[str, Mapping[str, str]] | None = None,
        rooms: Mapping[str, Room] | None = None,
    ) -> None:
        """`namespaces`: labels by name. `rooms`: the nodes of each flavor that has a topology."""
        self.settings = settings
        self.flavors = {flavor.name: flavor for flavor in flavors}
        self.queues = {queue.name: queue for queue in queues}
        self.local_queues = {queue.key: queue for queue in local_queues}
        self.namespaces = namespaces or {}
        self.rooms = dict(rooms or {})
        self.nodes, self.cohorts = build(queues, cohorts)
        self.workloads: dict[str, Workload] = {}
        self.holding: dict[str, dict[str, Workload]] = {name: {} for name in self.queues}
        """The workloads with quota, by queue."""
        self.removed: dict[str, Workload] = {}
        """Those that hold quota, but are taken out while something is tried."""
        self.candidates: dict[str, dict[frozenset[FlavorResource], Users]] = {}
        """Those that hold quota, by queue and by what they use (candidates.py)."""
        self.lines = {name: Line(queue, settings) for name, queue in self.queues.items()}
        self.ledger = None if settings.usage_sharing is None else UsageLedger(settings.usage_sharing)

    def queue_of(self, workload: Workload) -> ClusterQueue | None:
        """Return the cluster queue that a workload waits in."""
        local = self.local_queues.get(workload.queue)
        return None if local is None else self.queues.get(local.cluster_queue)

    def inactive(self, queue: ClusterQueue) -> str | None:
        """Return why a queue admits nothing, or None: a cycle of cohorts, a stop, a missing flavor."""
        if queue.name not in self.nodes:
            return f"cohort {queue.cohort}: its parents are a cycle"
        if queue.stop != "None":
            return f"stopPolicy is {queue.stop}"
        missing = sorted({name for group in queue.groups for name, _ in group.flavors} - self.flavors.keys())
        return f"flavor {missing[0]} not found" if missing else None

    def admits_namespace(self, queue: ClusterQueue, workload: Workload) -> bool:
        """Return whether the queue's selector matches the workload's namespace."""
        if not queue.namespace_selector:
            return queue.namespace_selector is not None
        labels = self.namespaces.get(workload.namespace, {})
        return matches(Term(queue.namespace_selector), Host(workload.namespace, labels=labels))

    def submit(self, workload: Workload, *, now: float) -> None:
        """Take a workload on: it waits, or holds quota already."""
        self.workloads[workload.key] = workload
        if workload.holds_quota:
            assert workload.admission is not None  # noqa: S101 - said by holds_quota
            if workload.admission.cluster_queue in self.nodes:
                self.put(workload)
                self.reorder(workload.admission.cluster_queue)
        else:
            self.wait(workload, now=now)

    def wait(self, workload: Workload, *, now: float) -> None:
        """Queue a workload without quota, unless it is inactive or its queue unknown or stopped."""
        queue = self.queue_of(workload)
        if queue is not None and workload.active and self.local_queues[workload.queue].stop == "None":
            self.lines[queue.name].add(workload, now=now)

    def reserve(self, workload: Workload, admission: Admission, *, now: float) -> None:
        """Give a workload its quota."""
        self.lines[admission.cluster_queue].remove(workload.key)
        workload.admission, workload.tried = admission, None
        workload.changed()
        workload.conditions["QuotaReserved"] = WorkloadCondition(status=True, reason="QuotaReserved", at=now)
        for condition in ("Evicted", "Preempted"):
            workload.conditions.pop(condition, None)
        self.put(workload)
        self.reorder(admission.cluster_queue)
        if self.ledger is not None and self.queues[admission.cluster_queue].by_usage:
            self.ledger.reserve(workload)

    def release(self, workload: Workload, *, now: float) -> None:
        """Take a workload's quota back, and wake those who may have waited for it."""
        admission = workload.admission
        if admission is None:
            return
        if workload.key in self.holding.get(admission.cluster_queue, {}):
            self.take(workload)
            del self.removed[workload.key]
            self.reorder(admission.cluster_queue)
        workload.admission = None
        workload.changed()
        workload.conditions["QuotaReserved"] = WorkloadCondition(status=False, reason="Pending", at=now)
        workload.conditions.pop("Admitted", None)
        self.wake(admission.cluster_queue, now=now)

    def forget(self, key: str, *, now: float) -> None:
        """Drop a workload that has ended or was cancelled."""
        workload = self.workloads.pop(key)
        for line in self.lines.values():
            line.remove(key)
        self.release(workload, now=now)

    def wake(self, queue: str, *, now: float) -> int:
        """Bring back what is parked in the whole tree of a queue; return how many."""
        node = self.nodes.get(queue)
        names = [queue] if node is None else [each.name for each in node.root.queues()]
        woken = 0
        for name in names:
            admits = partial(self.admits_namespace, self.queues[name])
            woken += self.lines[name].unpark(now=now, admits=admits)
        return woken

    def reorder(self, queue: str) -> None:
        """Forget in which order those of a queue are preempted: one has come, gone or changed."""
        self.candidates.pop(queue, None)

    def put(self, workload: Workload) -> None:
        """Count a workload's quota and nodes as used."""
        self._count(workload, sign=1)

    def take(self, workload: Workload) -> None:
        """Count them as free."""
        self._count(workload, sign=-1)

    def removed_of(self, queue: str) -> list[Workload]:
        """Return those of a queue that are taken out."""
        return [each for each in self.removed.values() if each.admission and each.admission.cluster_queue == queue]

    @contextmanager
    def without(self, workloads: Iterable[Workload]) -> Iterator[None]:
        """As if these held nothing."""
        gone = list(workloads)
        for each in gone:
            self.take(each)
        try:
            yield
        finally:
            for each in reversed(gone):
                self.put(each)

    def usage_of(self, workload: Workload) -> float:
        """Return the average usage of a workload's local queue."""
        assert self.ledger is not None  # noqa: S101 - asked for only then
        local = self.local_queues.get(workload.queue)
        return self.ledger.value(workload.queue, weight=1.0 if local is None else local.weight)

    def _count(self, workload: Workload, *, sign: int) -> None:
        admission = workload.admission
        assert admission is not None  # noqa: S101 - only workloads that hold quota
        name = admission.cluster_queue
        if sign > 0:
            self.nodes[name].add_all(workload.used())
            self.holding[name][workload.key] = workload
            self.removed.pop(workload.key, None)
        else:
            self.nodes[name].remove_all(workload.used())
            self.removed[workload.key] = self.holding[name].pop(workload.key)
        if self.rooms:
            self.occupy(workload, admission, sign=sign)

    def occupy(self, workload: Workload, admission: Admission, *, sign: int) -> None:
        """Take or give back the nodes of an admission."""
        requests = {podset.name: podset.requests for podset in workload.podsets}
        for podset in admission.podsets:
            if podset.topology is not None:
                for room in self.rooms.values():
                    room.take(podset.topology, requests[podset.name], sign=sign)


def boost_of(annotations: Mapping[str, str]) -> int:
    """Return the priority boost that annotations give; 0 if it is no number."""
    try:
        return int(annotations.get(BOOST, "0"))
    except ValueError:
        return 0
