"""Several requests of one workload, placed one after the other: groups, an unhealthy node, growth.

- Of the two requests of a `group` the one with fewer pods is the leader: it is placed together with the others.
- A `Replacement` moves only the pods of the unhealthy node. If that breaks a slice, the new pods must be in the domain
  of the rest of the slice; if the request requires one domain, in that.
- A request with a `previous` assignment keeps it as it grows, or gives up its last pods as it shrinks.

The room that one request gets is not available to the others. The first that cannot be placed ends the sequence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from netns.inventory.nodes import Node
from netns.placement.assign import NO_LEVELS, Placed, place_in
from netns.placement.model import (
    DEFAULT_FLAVOR,
    DEFAULT_PROFILE,
    DomainAssignment,
    PlacementRequest,
    Profile,
    Replacement,
    ResourceFlavor,
    Slice,
    TopologyAssignment,
    Unplaceable,
    Usage,
)
from netns.placement.resolve import requested_level
from netns.placement.tree import Tree, build

Results = dict[str, TopologyAssignment | Unplaceable]


@dataclass(frozen=True, slots=True)
class _Context:
    tree: Tree
    profile: Profile
    flavor: ResourceFlavor
    taken: list[Usage] = field(default_factory=list)
    _to_take: list[Usage] = field(default_factory=list)

    def place(
        self, request: PlacementRequest, leader: PlacementRequest | None = None, *, within: tuple[str, ...] = ()
    ) -> Placed | Unplaceable:
        self.tree.add_usage(self._to_take)
        self.taken.extend(self._to_take)
        self._to_take.clear()
        return place_in(
            self.tree, request=request, leader=leader, profile=self.profile, flavor=self.flavor, within=within
        )

    def take(self, request: PlacementRequest, assignment: TopologyAssignment) -> None:
        """Mark it as used for the requests that follow, if there are any."""
        self._to_take.extend(
            Usage(request.requests, count=domain.count, domain=domain.values) for domain in assignment.domains
        )

    def give_back(self) -> None:
        """Leave the tree as it was."""
        self.tree.add_usage(replace(usage, count=-usage.count) for usage in self.taken)


def assign_all(
    nodes: Iterable[Node],
    *,
    usage: Iterable[Usage],
    requests: Sequence[PlacementRequest],
    levels: Sequence[str],
    profile: Profile = DEFAULT_PROFILE,
    flavor: ResourceFlavor = DEFAULT_FLAVOR,
    replacement: Replacement | None = None,
) -> Results:
    """Assign the pods of each request, by its name; stop at the first Unplaceable."""
    if not levels:
        return {requests[0].name: NO_LEVELS} if requests else {}
    tree = build(nodes, levels=levels, flavor=flavor, usage=usage)
    return assign_in(tree, requests=requests, profile=profile, flavor=flavor, replacement=replacement)


def assign_in(
    tree: Tree,
    *,
    requests: Sequence[PlacementRequest],
    profile: Profile = DEFAULT_PROFILE,
    flavor: ResourceFlavor = DEFAULT_FLAVOR,
    replacement: Replacement | None = None,
) -> Results:
    """`assign_all` in an existing tree, which is left as it was."""
    context = _Context(tree, profile, flavor)
    results: Results = {}
    for group in _groups(requests):
        found = _replaced(context, group, replacement) if replacement else _placed(context, group)
        results |= found
        if any(isinstance(each, Unplaceable) for each in found.values()):
            break
    context.give_back()
    return results


def _groups(requests: Sequence[PlacementRequest]) -> list[list[PlacementRequest]]:
    groups: dict[tuple[str, str | int], list[PlacementRequest]] = {}
    for index, request in enumerate(requests):
        key = ("alone", index) if request.group is None else ("group", request.group)
        groups.setdefault(key, []).append(request)
    return list(groups.values())


def _placed(context: _Context, group: Sequence[PlacementRequest]) -> Results:
    workers, leader = group[0], group[1] if len(group) > 1 else None
    if leader is not None and leader.count > workers.count:
        workers, leader = leader, workers
    if leader is not None and leader.count != 1:
        wrong = Unplaceable("count", f"{leader.name}: the leader of a group is 1 pod, not {leader.count}")
        return {request.name: wrong for request in group}
    if context.profile.elastic and workers.previous is not None:
        grown = _resized(context, workers, leader, workers.previous)
        if grown is not None:
            return grown
    placed = context.place(workers, leader)
    if isinstance(placed, Unplaceable):
        return {request.name: placed for request in group}
    return _record(context, ((workers, placed[0]), (leader, placed[1])))


def _record(context: _Context, found: Iterable[tuple[PlacementRequest | None, TopologyAssignment | None]]) -> Results:
    results: Results = {}
    for request, assignment in found:
        if request is not None and assignment is not None:
            context.take(request, assignment)
            results[request.name] = assignment
    return results


def _resized(
    context: _Context, workers: PlacementRequest, leader: PlacementRequest | None, previous: TopologyAssignment
) -> Results | None:
    """Return the previous assignment, longer or shorter; None if it cannot be used, so that all is placed anew."""
    led = None if leader is None else leader.previous
    size = workers.slices[0].size if workers.slices else 1
    kept = previous.count
    if _stale(context.tree, previous) or (led is not None and _stale(context.tree, led)):
        return None
    if size < 1 or kept % size or workers.count % size:
        return None
    if workers.count <= kept:
        return _record(context, ((workers, _first(previous, workers.count)), (leader, led)))
    context.take(workers, previous)
    if leader is not None and led is not None:
        context.take(leader, led)
    more = context.place(replace(workers, count=workers.count - kept), leader if led is None else None)
    if isinstance(more, Unplaceable):
        return {workers.name: more}
    context.take(workers, more[0])
    results: Results = {workers.name: _merged(context.tree, more[0], previous)}
    if leader is not None:
        if led is None and more[1] is not None:
            context.take(leader, more[1])
            led = more[1]
        if led is not None:
            results[leader.name] = led
    return results


def _first(assignment: TopologyAssignment, count: int) -> TopologyAssignment:
    """Return the first `count` pods of an assignment."""
    domains: list[DomainAssignment] = []
    for domain in assignment.domains:
        if count <= 0:
            break
        domains.append(DomainAssignment(domain.values, min(domain.count, count)))
        count -= domain.count
    return TopologyAssignment(assignment.levels, tuple(domains))


def _replaced(context: _Context, group: Sequence[PlacementRequest], replacement: Replacement) -> Results:
    results: Results = {}
    for request in group:
        existing = replacement.assignments.get(request.name)
        if existing is None:
            continue
        results[request.name] = _moved(context, request, existing, replacement.node)
        if isinstance(results[request.name], Unplaceable):
            break
    return results


def _moved(
    context: _Context, request: PlacementRequest, existing: TopologyAssignment, unhealthy: str
) -> TopologyAssignment | Unplaceable:
    """Return `existing` with the pods of the node `unhealthy` moved."""
    missing = sum(domain.count for domain in existing.domains if domain.values[-1] == unhealthy)
    kept = TopologyAssignment(
        existing.levels, tuple(domain for domain in existing.domains if domain.values[-1] != unhealthy)
    )
    stale = _stale(context.tree, kept)
    if stale is not None:
        return Unplaceable(
            "stale",
            "Cannot replace the node, because the existing topologyAssignment is invalid, "
            f"as it contains the stale domain {stale}",
            argument=stale,
        )
    nowhere = Unplaceable(
        "no_replacement", f"cannot find replacement assignment for unhealthy node: {unhealthy}", argument=unhealthy
    )
    wanted = replace(request, count=missing)
    within = _required_domain(context.tree, request, kept, missing)
    if _broken(request, missing):
        if not within:
            return nowhere
        wanted = replace(wanted, slices=_whole(request.slices, missing))
    if missing == 0:
        return nowhere
    placed = context.place(wanted, within=within)
    if isinstance(placed, Unplaceable):
        return placed
    context.take(request, placed[0])
    return _merged(context.tree, placed[0], kept)


def _broken(request: PlacementRequest, missing: int) -> bool:
    """Return whether the missing pods are not whole slices."""
    return bool(request.slices) and missing % max(request.slices[0].size, 1) != 0


def _whole(slices: Sequence[Slice], missing: int) -> tuple[Slice, ...]:
    """Return the innermost slices that the missing pods fill; none if they fill not even those."""
    return next(((each,) for each in reversed(slices) if missing % each.size == 0), ())


def _required_domain(tree: Tree, request: PlacementRequest, kept: TopologyAssignment, missing: int) -> tuple[str, ...]:
    """Return the domain that new pods must stay in; () if they may go anywhere."""
    if not kept.domains:
        return ()
    if _broken(request, missing):
        # The innermost of the broken slices: its domain lies within those of the others.
        incomplete = next(each for each in reversed(request.slices) if missing % each.size != 0)
        return _incomplete_domain(tree, incomplete, kept, missing)
    level = requested_level(request, tree.levels)
    if request.mode != "required" or level not in tree.levels:
        return ()
    return tree.path(kept.domains[0].values)[: tree.levels.index(level) + 1]


def _incomplete_domain(tree: Tree, incomplete: Slice, kept: TopologyAssignment, missing: int) -> tuple[str, ...]:
    """Return the domain whose pods are whole slices again with the missing ones."""
    if incomplete.level not in tree.levels:
        return ()
    depth = tree.levels.index(incomplete.level) + 1
    pods: Counter[tuple[str, ...]] = Counter()
    for domain in kept.domains:
        pods[tree.path(domain.values)[:depth]] += domain.count
    return next((path for path in sorted(pods) if (pods[path] + missing) % incomplete.size == 0), ())


def _stale(tree: Tree, assignment: TopologyAssignment) -> str | None:
    """Return the first domain of `assignment` that no longer exists."""
    return next((domain.values[0] for domain in assignment.domains if not tree.contains(domain.values)), None)


def _merged(tree: Tree, first: TopologyAssignment, second: TopologyAssignment) -> TopologyAssignment:
    """Return the sum of both, in the order of label paths."""
    counts: Counter[tuple[str, ...]] = Counter()
    for domain in (*first.domains, *second.domains):
        counts[domain.values] += domain.count
    values = sorted(counts, key=tree.path)
    return TopologyAssignment(first.levels, tuple(DomainAssignment(each, counts[each]) for each in values))
