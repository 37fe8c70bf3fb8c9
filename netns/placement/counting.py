"""Count the room for a request in each domain of the lowest level, and the exclusions by reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from netns.inventory.nodes import PODS, Node
from netns.placement.domain import UNBOUNDED, Fit, Fits, HostContents
from netns.placement.matching import score, why_not
from netns.placement.model import Affinity, Toleration
from netns.placement.tree import Tree

MAX_KNOWN: Final = 16
"""Demands whose counts are kept for a rack."""

_NOTHING: Final[Mapping[str, int]] = {}


@dataclass(slots=True)
class Excluded:
    """How many nodes were checked, and how many had no room for a single pod."""

    nodes: int = 0
    reasons: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Filters:
    """The conditions for nodes for the pods of one request."""

    tolerations: tuple[Toleration, ...]
    selector: Mapping[str, str]
    affinity: Affinity | None
    within: tuple[str, ...] = ()
    """A replacement stays within this domain."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What is counted for one request."""

    worker: Mapping[str, int]
    """The requests of one pod."""

    leader: Mapping[str, int] | None = None
    """The requests of its leader, if there is one."""

    slice_size: int = 0
    """The pods of a slice, if slices lie within domains of the lowest level; else 0."""

    scored: bool = False
    """Whether preferred affinity counts."""


def count_hosts(tree: Tree, demand: Demand, *, filters: Filters) -> Excluded:
    """Count what fits on the hosts of every domain just above the lowest level."""
    counting = _Counting(demand, filters, of_nodes=tree.of_nodes)
    for domain, hosts in tree.holders:
        domain.set_fit(counting.fits(hosts))
    return counting.excluded


class _Counting:
    def __init__(self, demand: Demand, filters: Filters, *, of_nodes: bool) -> None:
        self.excluded = Excluded()
        self._worker = _with_slot(demand.worker)
        self._leader = None if demand.leader is None else _with_slot(demand.leader)
        self._demand = demand
        self._filters = filters
        self._of_nodes = of_nodes
        self._filters_nodes = bool(filters.selector) or filters.affinity is not None
        self._known: dict[int, tuple[Fit, str]] = {}
        leader = None if self._leader is None else tuple(self._leader.items())
        self._kind = (tuple(self._worker.items()), leader, demand.slice_size, filters.tolerations)
        self._lasting = not (self._filters_nodes or filters.within)
        """Whether what is counted depends on `_kind` and the hosts alone."""

    def fits(self, hosts: HostContents) -> Fits:
        """Return what fits on each of `hosts`: as counted before, if nothing has changed there."""
        self.excluded.nodes += len(hosts.nodes)
        found = hosts.known.get(self._kind) if self._lasting else None
        if found is None:
            before = Counter(self.excluded.reasons)
            fits = self._counted(hosts)
            found = Fits(fits, self.excluded.reasons - before)
            self.excluded.reasons = before
            if self._lasting:
                if len(hosts.known) >= MAX_KNOWN:
                    hosts.known.clear()
                hosts.known[self._kind] = found
        reasons = self.excluded.reasons
        for reason, count in found.excluded.items():  # as Counter.update does, in a fifth of the time
            reasons[reason] += count
        return found

    def _counted(self, hosts: HostContents) -> list[Fit]:
        """Count; once for hosts with equal room."""
        within, known, found = self._filters.within, self._known, []
        for name, node in hosts.nodes.items():
            points = 0
            if self._of_nodes and (self._filters_nodes or node.taints):
                reason = self._why_not(node)
                if reason is not None:
                    found.append(self._left_out(reason))
                    continue
                points = score(node, self._filters.affinity) if self._demand.scored else 0
            if within and (*hosts.path, name)[: len(within)] != within:
                found.append(self._left_out("topologyDomain", points))
                continue
            used = hosts.used.get(name) if hosts.used else None
            if used or points:
                fit, scarce = self._fit(node.allocatable, used or _NOTHING, points)
            else:
                kind = id(node.allocatable)
                if kind not in known:
                    known[kind] = self._fit(node.allocatable, _NOTHING, 0)
                fit, scarce = known[kind]
            if fit.pods == 0:
                self.excluded.reasons[f"resource {scarce}"] += 1
            found.append(fit)
        return found

    def _why_not(self, node: Node) -> str | None:
        by = self._filters
        return why_not(node, tolerations=by.tolerations, selector=by.selector, affinity=by.affinity)

    def _left_out(self, reason: str, points: int = 0) -> Fit:
        self.excluded.reasons[reason] += 1
        return Fit(0, 0, 0, 0, 0, points)

    def _fit(self, room: Mapping[str, int], used: Mapping[str, int], points: int) -> tuple[Fit, str]:
        """Return what fits, and the resource that is used up first."""
        pods, scarce = _fits(self._worker, room, used)
        pods_led, leaders = pods, 0
        if self._leader is not None and _fits(self._leader, room, used)[0] > 0:
            leaders = 1
            together = Counter(used)
            together.update(self._leader)
            pods_led = _fits(self._worker, room, together)[0]
        size = self._demand.slice_size
        slices, slices_led = (pods // size, pods_led // size) if size else (0, 0)
        return Fit(pods, pods_led, slices, slices_led, leaders, points), scarce


def _with_slot(requests: Mapping[str, int]) -> dict[str, int]:
    """Return the requests of one pod with its slot, in the order in which resources are named as the scarce one."""
    with_slot = {**requests, PODS: requests.get(PODS, 0) + 1}
    return {resource: with_slot[resource] for resource in sorted(with_slot)}


def _fits(requests: Mapping[str, int], room: Mapping[str, int], used: Mapping[str, int]) -> tuple[int, str]:
    """Return how many pods fit, and the resource that is used up first."""
    least, scarce = UNBOUNDED, ""
    for resource, amount in requests.items():
        if amount == 0:
            continue
        count = max(0, (room.get(resource, 0) - used.get(resource, 0)) // amount)
        if count < least:
            least, scarce = count, resource
    return least, scarce
