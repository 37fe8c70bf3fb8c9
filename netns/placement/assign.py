"""Kueue's topology-aware scheduling as functions over plain data: assign the pods of a job to domains.

    request = PlacementRequest(count=8, requests={"cpu": 1000}, mode="preferred", level=RACK)
    found = assign(nodes, usage=[], request=request, levels=[BLOCK, RACK, HOST], profile=Profile())

The algorithm is that of Kueue (KEP 2724, pkg/cache/scheduler/tas_flavor_snapshot.go), in two phases. Upwards: count the
room in every domain (counting.py, domain.py). Downwards: choose domains at the requested level (choose.py), or spread
evenly (balanced.py), and descend level by level on as few domains as possible (descend.py). Intended difference to
Kueue: a request for no pods, and slices that do not divide its pods, are refused here and not at admission.

Nothing is kept between two calls of `assign`, and the order of the nodes does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from netns.inventory.nodes import Node
from netns.placement.balanced import balance
from netns.placement.choose import ResolvedRequest, Shortfall, choose
from netns.placement.counting import Demand, Filters, count_hosts, excluded
from netns.placement.descend import NoRoomBelow, descend
from netns.placement.domain import Domain, fill_up
from netns.placement.failure import not_fit
from netns.placement.model import (
    DEFAULT_FLAVOR,
    DEFAULT_PROFILE,
    DomainAssignment,
    PlacementRequest,
    Profile,
    ResourceFlavor,
    TopologyAssignment,
    Unplaceable,
    Usage,
)
from netns.placement.resolve import resolve
from netns.placement.tree import Tree, build

Placed = tuple[TopologyAssignment, TopologyAssignment | None]
"""The assignments of the pods, and of their leader if there is one."""

NO_LEVELS: Final = Unplaceable("unknown_level", "levels: none given; a topology needs at least one")


def assign(
    nodes: Iterable[Node],
    *,
    usage: Iterable[Usage],
    request: PlacementRequest,
    levels: Sequence[str],
    profile: Profile = DEFAULT_PROFILE,
    flavor: ResourceFlavor = DEFAULT_FLAVOR,
) -> TopologyAssignment | Unplaceable:
    """Assign the pods of one request, beside the pods that run already; or return why that is impossible.

    `levels`: label keys from the widest to the narrowest. Time grows with the nodes, n log n for their sorting.
    """
    if not levels:
        return NO_LEVELS
    tree = build(nodes, levels=levels, flavor=flavor, usage=usage)
    placed = place_in(tree, request=request, leader=None, profile=profile, flavor=flavor)
    return placed if isinstance(placed, Unplaceable) else placed[0]


def place_in(
    tree: Tree,
    *,
    request: PlacementRequest,
    leader: PlacementRequest | None,
    profile: Profile,
    flavor: ResourceFlavor,
    within: tuple[str, ...] = (),
) -> Placed | Unplaceable:
    """`assign` in an existing tree, with a `leader` beside the pods, and only `within` one domain."""
    resolved = resolve(request, levels=tree.levels, profile=profile, leaders=0 if leader is None else 1)
    if isinstance(resolved, Unplaceable):
        return resolved
    if not tree.holders:
        level = tree.levels[resolved.level]
        return Unplaceable("no_domains_at_level", f"no topology domains at level: {level}", argument=level)
    filters = Filters(
        tolerations=(*request.tolerations, *flavor.tolerations),
        selector=request.node_selector,
        affinity=request.affinity,
        within=within,
    )
    demand = Demand(
        request.requests,
        leader=None if leader is None else leader.requests,
        slice_size=resolved.slice_size if resolved.slice_level == len(tree.levels) - 1 else 0,
        scored=resolved.scored,
    )
    sums = (resolved.slice_size, resolved.slice_level, tuple(resolved.inner.items()))
    tree = tree.view((demand.key(filters), sums))
    count_hosts(tree, demand, filters=filters)
    for domain in tree.at(0) if len(tree.levels) > 1 else ():
        fill_up(
            domain,
            slice_size=resolved.slice_size,
            slice_level=resolved.slice_level,
            level=0,
            inner=resolved.inner,
            led=resolved.leaders > 0,
        )
    given = _search(tree, resolved, profile=profile)
    if isinstance(given, Shortfall):
        return not_fit(
            tree, resolved, given, excluded=excluded(tree), topology=flavor.topology or "default", slices=request.slices
        )
    return _assignment(tree, given), None if leader is None else _leader_assignment(tree, given)


def _search(tree: Tree, resolved: ResolvedRequest, *, profile: Profile) -> list[Domain] | Shortfall:
    balanced = (
        balance(tree, resolved) if profile.balanced and not resolved.required and not resolved.unconstrained else None
    )
    chosen = balanced or choose(tree, resolved)
    if isinstance(chosen, Shortfall):
        return chosen
    level, domains = chosen
    try:
        return descend(tree, domains, resolved, level=level, spread=balanced is not None)
    except NoRoomBelow as short:
        return Shortfall(max(0, resolved.count - short.pods) // resolved.slice_size, level)


def _assignment(tree: Tree, given: Iterable[Domain]) -> TopologyAssignment:
    return _of(tree, [(domain, domain.pods) for domain in given if domain.pods > 0])


def _leader_assignment(tree: Tree, given: Iterable[Domain]) -> TopologyAssignment:
    return _of(tree, [(domain, domain.leaders) for domain in given if domain.leaders > 0])


def _of(tree: Tree, counts: list[tuple[Domain, int]]) -> TopologyAssignment:
    levels = tree.levels[-1:] if tree.of_nodes else tree.levels
    counts.sort(key=lambda each: each[0].values)
    return TopologyAssignment(
        levels, tuple(DomainAssignment(tree.assignment_name(domain.values), count) for domain, count in counts)
    )
