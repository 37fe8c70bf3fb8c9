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

    @property
    def of_nodes(self) -> bool:
        """Whether they look at labels of nodes, or where they are."""
        return bool(self.selector) or self.affinity is not None or bool(self.within)


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

    def key(self, filters: Filters) -> object:
        """Return what the counts depend on beside the hosts; None if they are not worth keeping."""
        if filters.of_nodes:
            return None
        leader = None if self.leader is None else tuple(sorted(self.leader.items()))
        return tuple(sorted(self.worker.items())), leader, self.slice_size, self.scored, filters.tolerations


def count_hosts(tree: Tree, demand: Demand, *, filters: Filters) -> None:
    """Count what fits on the hosts of every domain just above the lowest level.

    What was counted for the same demand stays where nothing has changed since.
    """
    counting: _Counting | None = None
    anew = filters.of_nodes
    for domain, hosts in tree.holders:
        if anew or not domain.fits_still():
            if counting is None:
                counting = _Counting(demand, filters, of_nodes=tree.of_nodes)
            domain.set_fit(counting.fits(hosts))


def excluded(tree: Tree) -> Excluded:
    """Return whom the counts of a tree leave out."""
    found = Excluded()
    for domain, hosts in tree.holders:
        found.nodes += len(hosts.nodes)
        found.reasons.update(domain.fits.excluded)
    return found


class _Counting:
    def __init__(self, demand: Demand, filters: Filters, *, of_nodes: bool) -> None:
        self._reasons: Counter[str] = Counter()
        self._worker = _with_slot(demand.worker)
        self._leader = None if demand.leader is None else _with_slot(demand.leader)
        self._demand = demand
        self._filters = filters
        self._of_nodes = of_nodes
        self._filters_nodes = bool(filters.selector) or filters.affinity is not None
        self._known: dict[int, tuple[Fit, str]] = {}

    def fits(self, hosts: HostContents) -> Fits:
        """Return what fits on each of `hosts`."""
        self._reasons = Counter()
        return Fits(self._counted(hosts), self._reasons)

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
                self._reasons[f"resource {scarce}"] += 1
            found.append(fit)
        return found

    def _why_not(self, node: Node) -> str | None:
        by = self._filters
        return why_not(node, tolerations=by.tolerations, selector=by.selector, affinity=by.affinity)

    def _left_out(self, reason: str, points: int = 0) -> Fit:
        self._reasons[reason] += 1
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
