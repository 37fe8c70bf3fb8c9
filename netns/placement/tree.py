"""The domains of a topology as a tree, and how much of a request each has room for (Kueue's phase 1).

Built anew for every assignment from plain nodes: one pass over them. The numbers of a `Part` are the algorithm's
working memory: room at first, then, on the way down, what was given to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from netns.nodes import HOSTNAME_LABEL, PODS, Node
from netns.placement.matching import score, why_not
from netns.placement.model import Affinity, Flavor, Toleration, Usage

UNBOUNDED = 2**31 - 1
"""Room for pods that ask for none of a resource: Kueue counts in 32 bits."""


class Part:
    """One domain."""

    __slots__ = (
        "children", "leaders", "node", "parent", "pods", "pods_led", "room", "score", "slices", "slices_led", "used",
        "values",
    )  # fmt: skip

    def __init__(self, values: tuple[str, ...], parent: Part | None) -> None:
        self.values = values
        """Label values of all levels down to its own: what it is known by, and sorted by."""
        self.parent = parent
        self.children: list[Part] = []
        self.node: Node | None = None
        """Of a domain of the lowest level that is one node."""
        self.room: Mapping[str, int] = {}
        """Of a domain of the lowest level: what its nodes can give."""
        self.used: dict[str, int] | None = None
        """Of a domain of the lowest level: what is taken of it."""
        self.clear()

    def clear(self) -> None:
        """No room for anything."""
        self.pods = 0
        """Pods."""
        self.pods_led = 0
        """Pods besides the leader."""
        self.slices = 0
        """Slices; nothing below their level."""
        self.slices_led = 0
        """Slices besides the leader."""
        self.leaders = 0
        """Leaders: 0 or 1."""
        self.score = 0
        """Weight of the preferred affinity of its nodes."""

    def above(self, levels: int) -> Part:
        """The domain so many levels above."""
        part = self
        for _ in range(levels):
            assert part.parent is not None  # noqa: S101 - the caller counts levels within the tree
            part = part.parent
        return part


@dataclass(slots=True)
class Tree:
    """All domains, by level."""

    levels: tuple[str, ...]
    per_level: tuple[list[Part], ...]
    leaves: dict[tuple[str, ...], Part]
    """Domains of the lowest level by what assignments call them."""

    @property
    def of_nodes(self) -> bool:
        """Whether the lowest level is that of nodes: only then can taints and selectors be looked at."""
        return self.levels[-1] == HOSTNAME_LABEL

    def named(self, part: Part) -> tuple[str, ...]:
        """How assignments call a domain of the lowest level."""
        return part.values[-1:] if self.of_nodes else part.values

    def add_usage(self, usage: Iterable[Usage]) -> None:
        """Take what pods use that run in known domains; others run elsewhere and take nothing here."""
        for each in usage:
            part = self.leaves.get(each.domain or ())
            if part is not None:
                use(part, each.requests, count=each.count)


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


def build(nodes: Iterable[Node], *, levels: Sequence[str], flavor: Flavor, usage: Iterable[Usage]) -> Tree:
    """The tree of the nodes that belong to `flavor`: ready, not cordoned, with its labels and all `levels`."""
    tree = Tree(tuple(levels), tuple([] for _ in levels), {})
    known: dict[tuple[str, ...], Part] = {}
    part_of: dict[str, Part] = {}
    for node in sorted(nodes, key=_name):  # so that nothing depends on the order in which they came
        labels = node.labels
        if not node.ready or node.unschedulable or any(labels.get(k) != v for k, v in flavor.node_labels.items()):
            continue
        try:
            values = tuple([labels[level] for level in levels])
        except KeyError:
            continue
        part_of[node.name] = _add(tree, known, values, node)
    waiting = list(usage)
    for each in waiting:
        if each.node is not None and each.node in part_of:
            use(part_of[each.node], each.requests, count=each.count)
    tree.add_usage(waiting)
    return tree


def use(part: Part, requests: Mapping[str, int], *, count: int) -> None:
    """Take what `count` pods use, their slots included."""
    used = part.used = part.used or {}
    for resource, amount in requests.items():
        used[resource] = used.get(resource, 0) + amount * count
    used[PODS] = used.get(PODS, 0) + count


def fill_leaves(
    tree: Tree, *, worker: Mapping[str, int], leader: Mapping[str, int] | None, filters: Filters, scored: bool
) -> Excluded:
    """Count the pods that each domain of the lowest level has room for; `worker`, `leader`: what one takes."""
    excluded = Excluded(nodes=len(tree.per_level[-1]))
    worker, leader = _with_slot(worker), None if leader is None else _with_slot(leader)
    depth = len(filters.within)
    for part in tree.per_level[-1]:
        if part.node is not None:
            reason = why_not(
                part.node, tolerations=filters.tolerations, selector=filters.selector, affinity=filters.affinity
            )
            if reason is not None:
                excluded.reasons[reason] += 1
                continue
            if scored:
                part.score = score(part.node, filters.affinity)
        if part.values[:depth] != filters.within:
            excluded.reasons["topologyDomain"] += 1
            continue
        part.pods, scarce = _fits(worker, part.room, part.used or {})
        if part.pods == 0:
            excluded.reasons[f"resource {scarce}"] += 1
        part.pods_led = part.pods
        if leader is not None:
            _fill_led(part, worker, leader)
    return excluded


def fill_up(part: Part, *, slice_size: int, slice_level: int, level: int, inner: Mapping[int, int], led: bool) -> None:
    """Sum up from the lowest level to `part`, which is at `level`.

    `inner`: sizes of nested slices by level; a domain there counts whole slices only. `led`: a leader is asked for, so
    that only domains with room for it say what it costs: the least that any child would have to give up.
    """
    if not part.children:
        if level == slice_level:
            part.slices, part.slices_led = part.pods // slice_size, part.pods_led // slice_size
        return
    whole = inner.get(level + 1, 1)
    pods = slices = leaders = total = 0
    lost_pods = lost_slices = UNBOUNDED
    hosts_leader = False
    for child in part.children:
        fill_up(child, slice_size=slice_size, slice_level=slice_level, level=level + 1, inner=inner, led=led)
        child_pods = child.pods - child.pods % whole
        pods += child_pods
        slices += child.slices
        if not led or child.leaders:
            hosts_leader = True
            lost_pods = min(lost_pods, child_pods - (child.pods_led - child.pods_led % whole))
            lost_slices = min(lost_slices, child.slices - child.slices_led)
        leaders = max(leaders, child.leaders)
        total += child.score
    part.pods, part.leaders, part.score = pods, leaders, total
    part.pods_led = pods - lost_pods if hosts_leader else 0
    part.slices, part.slices_led = slices, slices - lost_slices if hosts_leader else 0
    if level == slice_level:
        part.slices, part.slices_led = part.pods // slice_size, part.pods_led // slice_size


def lower(parts: Iterable[Part]) -> Iterator[Part]:
    """The children of all `parts`."""
    for part in parts:
        yield from part.children


def _name(node: Node) -> str:
    return node.name


def _add(tree: Tree, known: dict[tuple[str, ...], Part], values: tuple[str, ...], node: Node) -> Part:
    """Put a node into its domain of the lowest level, which is made with those above where it is the first."""
    name = values[-1:] if tree.of_nodes else values
    part = tree.leaves.get(name)
    if part is not None:  # the second node of a domain; or a hostname given twice, which is one node to Kueue
        room = dict(part.room)
        for resource, amount in node.allocatable.items():
            room[resource] = room.get(resource, 0) + amount
        part.room = room
        return part
    parent = None
    for depth in range(1, len(values)):
        above = known.get(values[:depth])
        if above is None:
            above = known[values[:depth]] = _part(tree, values[:depth], parent)
        parent = above
    part = tree.leaves[name] = _part(tree, values, parent)
    part.room = node.allocatable
    part.node = node if tree.of_nodes else None
    return part


def _part(tree: Tree, values: tuple[str, ...], parent: Part | None) -> Part:
    part = Part(values, parent)
    tree.per_level[len(values) - 1].append(part)
    if parent is not None:
        parent.children.append(part)
    return part


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
