"""How much of a request each domain of the lowest level has room for, and what has none for which reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from netns.nodes import PODS
from netns.placement.matching import score, why_not
from netns.placement.model import Affinity, Toleration
from netns.placement.part import NOTHING, UNBOUNDED, Part
from netns.placement.tree import Tree


@dataclass(slots=True)
class Excluded:
    """What was looked at, and what had no room for a single pod."""

    nodes: int = 0
    reasons: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Filters:
    """Which nodes count for the pods of one request."""

    tolerations: tuple[Toleration, ...]
    selector: Mapping[str, str]
    affinity: Affinity | None
    within: tuple[str, ...] = ()
    """A replacement stays within this domain."""


def fill_leaves(
    tree: Tree, *, worker: Mapping[str, int], leader: Mapping[str, int] | None, filters: Filters, scored: bool
) -> Excluded:
    """Count the pods that each domain of the lowest level has room for; `worker`, `leader`: what one takes."""
    excluded = Excluded(nodes=len(tree.per_level[-1]))
    worker, leader = _with_slot(worker), None if leader is None else _with_slot(leader)
    picky = bool(filters.selector) or filters.affinity is not None
    depth = len(filters.within)
    known: dict[int, tuple[int, str]] = {}  # nodes of a kind share what they have room for: count it once
    for part in tree.per_level[-1]:
        node = part.node
        if node is not None and (picky or node.taints):
            reason = why_not(
                node, tolerations=filters.tolerations, selector=filters.selector, affinity=filters.affinity
            )
            if reason is not None:
                excluded.reasons[reason] += 1
                continue
            if scored:
                part.score = score(node, filters.affinity)
        if depth and part.values[:depth] != filters.within:
            excluded.reasons["topologyDomain"] += 1
            continue
        fit = None if part.used else known.get(id(part.room))
        if fit is None:
            fit = _fits(worker, part.room, part.used or NOTHING)
            if not part.used:
                known[id(part.room)] = fit
        part.pods, scarce = fit
        if part.pods == 0:
            excluded.reasons[f"resource {scarce}"] += 1
        part.pods_led = part.pods
        if leader is not None:
            _fill_led(part, worker, leader)
    return excluded


def _with_slot(requests: Mapping[str, int]) -> dict[str, int]:
    """What one pod takes, its slot included, in the order in which resources are named as the scarce one."""
    with_slot = {**requests, PODS: requests.get(PODS, 0) + 1}
    return {resource: with_slot[resource] for resource in sorted(with_slot)}


def _fits(requests: Mapping[str, int], room: Mapping[str, int], used: Mapping[str, int]) -> tuple[int, str]:
    """How many pods fit, and the resource that is used up first."""
    least, scarce = UNBOUNDED, ""
    for resource, amount in requests.items():
        if amount == 0:
            continue
        count = max(0, (room.get(resource, 0) - used.get(resource, 0)) // amount)
        if count < least:
            least, scarce = count, resource
    return least, scarce


def _fill_led(part: Part, worker: Mapping[str, int], leader: Mapping[str, int]) -> None:
    """Count the pods that fit besides the leader, if it fits at all."""
    used = dict(part.used or {})
    if _fits(leader, part.room, used)[0] > 0:
        part.leaders = 1
        for resource, amount in leader.items():
            used[resource] = used.get(resource, 0) + amount
    part.pods_led = _fits(worker, part.room, used)[0]
