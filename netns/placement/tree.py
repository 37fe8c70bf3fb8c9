"""The domains of a topology as a tree, built from plain nodes in one pass over them.

Built anew for every assignment. Per node it makes one object and reads what it must: with 25,000 nodes the time goes to
memory, not to arithmetic (scripts/bench placement).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from netns.nodes import HOSTNAME_LABEL, PODS, Node
from netns.placement.model import Flavor, Usage
from netns.placement.part import Part

_by_name = attrgetter("name")

_Inner = dict[tuple[str, ...], tuple[tuple[str, ...], list[Part]]]
"""Label path of a domain above the lowest level -> that path, to be shared by its children; the children."""


class Tree:
    """All domains, by level."""

    def __init__(self, levels: Sequence[str], per_level: tuple[list[Part], ...]) -> None:
        self.levels = tuple(levels)
        """Label keys, from the widest to the narrowest."""
        self.per_level = per_level
        """The domains of each level, in the order of their label paths."""
        self._leaves: dict[tuple[str, ...], Part] | None = None
        self._counted = False

    @property
    def of_nodes(self) -> bool:
        """Whether the lowest level is that of nodes: only then can taints and selectors be looked at."""
        return self.levels[-1] == HOSTNAME_LABEL

    def called(self, part: Part) -> tuple[str, ...]:
        """How assignments call a domain of the lowest level: a node by its hostname, else by the whole path."""
        return (part.name,) if self.of_nodes else part.values

    def find(self, values: tuple[str, ...]) -> Part | None:
        """The domain of the lowest level that assignments call `values`."""
        if self._leaves is None:
            self._leaves = {self.called(part): part for part in self.per_level[-1]}
        return self._leaves.get(values)

    def path(self, values: tuple[str, ...]) -> tuple[str, ...]:
        """The whole label path of the domain that assignments call `values`; KeyError if there is none."""
        part = self.find(values)
        if part is None:
            raise KeyError(values)
        return part.values

    def clear(self) -> None:
        """Forget the numbers of the request before, if there was one."""
        if self._counted:
            for parts in self.per_level:
                for part in parts:
                    part.clear()
        self._counted = True

    def add_usage(self, usage: Iterable[Usage]) -> None:
        """Take what pods use that run in known domains; others run elsewhere and take nothing here."""
        for each in usage:
            part = None if each.domain is None else self.find(each.domain)
            if part is not None:
                use(part, each.requests, count=each.count)


def build(nodes: Iterable[Node], *, levels: Sequence[str], flavor: Flavor, usage: Iterable[Usage]) -> Tree:
    """The tree of the nodes that belong to `flavor`: ready, not cordoned, with its labels and all `levels`."""
    usage = list(usage)
    by_node: dict[str, list[Usage]] = {}
    for each in usage:
        if each.node is not None:
            by_node.setdefault(each.node, []).append(each)
    roots: list[Part] = []
    inner: _Inner = {(): ((), roots)}
    wanted, above_levels, lowest = tuple(flavor.node_labels.items()), tuple(levels[:-1]), levels[-1]
    of_nodes = lowest == HOSTNAME_LABEL
    for node in nodes:
        labels = node.labels
        if not node.ready or node.unschedulable or (wanted and any(labels.get(k) != v for k, v in wanted)):
            continue
        try:
            path, name = tuple([labels[level] for level in above_levels]), labels[lowest]
        except KeyError:
            continue
        above, siblings = inner.get(path) or _add(path, inner)
        part = Part(above, name)
        siblings.append(part)
        part.room = node.allocatable
        if of_nodes:
            part.node = node
        for each in by_node.get(node.name, ()) if by_node else ():
            use(part, each.requests, count=each.count)
    tree = Tree(levels, _ordered(roots, depth=len(levels)))
    tree.add_usage(usage)
    return tree


def use(part: Part, requests: Mapping[str, int], *, count: int) -> None:
    """Take what `count` pods use, their slots included."""
    used = part.used = part.used or {}
    for resource, amount in requests.items():
        used[resource] = used.get(resource, 0) + amount * count
    used[PODS] = used.get(PODS, 0) + count


def _add(path: tuple[str, ...], inner: _Inner) -> tuple[tuple[str, ...], list[Part]]:
    """Make the domain of `path`, and those above it that are missing."""
    above, siblings = inner.get(path[:-1]) or _add(path[:-1], inner)
    part = Part(above, path[-1])
    part.children = []
    siblings.append(part)
    inner[path] = path, part.children
    return inner[path]


def _ordered(roots: list[Part], *, depth: int) -> tuple[list[Part], ...]:
    """The domains of each level in the order of label paths, whatever the order in which their nodes came."""
    per_level = [_merged(roots)]
    for _ in range(depth - 1):
        below: list[Part] = []
        for part in per_level[-1]:
            part.children = _merged(part.children)
            below += part.children
        per_level.append(below)
    return tuple(per_level)


def _merged(siblings: list[Part]) -> list[Part]:
    """Sorted by name; nodes of one lowest domain, which have its name in common, become that one domain."""
    siblings.sort(key=_by_name)
    merged = siblings[:1]
    for part in siblings[1:]:
        last = merged[-1]
        if part.name != last.name:
            merged.append(part)
            continue
        last.room, last.used = _sum(last.room, part.room), _sum(last.used or {}, part.used or {})
        if last.node is not None and part.node is not None:  # a hostname given twice: one node to Kueue, the first
            last.node = min(last.node, part.node, key=_by_name)
    return merged


def _sum(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    return {resource: first.get(resource, 0) + second.get(resource, 0) for resource in {**first, **second}}
