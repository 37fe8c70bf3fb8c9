"""The domains of a topology as a tree, built from plain nodes in one pass over them.

It is built anew for every assignment of a job alone; governance keeps one. With many nodes, memory dominates the time,
not arithmetic (scripts/bench placement): hence there is no object for a node, only an entry in the domain above it
(domain.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Final

from netns.inventory.nodes import HOSTNAME_LABEL, PODS, Node
from netns.placement.domain import Domain, HostContents
from netns.placement.model import ResourceFlavor, Usage

MAX_VIEWS: Final = 16
"""Demands for which the domains of a tree are kept."""

_by_name = attrgetter("name")


class Tree:
    """All domains."""

    def __init__(self, levels: Sequence[str]) -> None:
        self.levels = tuple(levels)
        """Label keys, from the widest to the narrowest."""
        self.root = Domain((), "")
        """The whole topology: above the domains of the first level."""
        self.holders: list[tuple[Domain, HostContents]] = []
        """The domains just above the lowest level (the whole, if there is one level), and their contents."""
        self._hosts_by_name: dict[tuple[str, ...], HostContents] | None = None
        self._levels: list[list[Domain]] = []
        self._views: dict[object, Tree] = {}
        self._viewed = False

    @property
    def of_nodes(self) -> bool:
        """Whether the lowest level is that of nodes: only then are taints and selectors checked."""
        return self.levels[-1] == HOSTNAME_LABEL

    def at(self, level: int) -> list[Domain]:
        """Return the domains of one level, in the order of their label paths."""
        if level < len(self._levels):
            return self._levels[level]
        above = self.at(level - 1) if level else [self.root]
        found = [child for domain in above for child in domain.children]
        if level < len(self.levels) - 1:  # those of the lowest level come and go
            self._levels.append(found)
        return found

    def view(self, of: object) -> Tree:
        """Return the tree with domains of its own for demands that are counted and summed up alike, by their key `of`.

        So the numbers of a tree that stays are counted and summed up anew only where something has changed. The first
        view is the tree itself.
        """
        found = self._views.get(of)
        if found is None:
            if len(self._views) >= MAX_VIEWS:
                self._views.clear()
            found, self._viewed = self._twin() if self._viewed else self, True
            self._views[of] = found
        return found

    def _twin(self) -> Tree:
        twin = Tree(self.levels)
        _link(twin, {hosts.path: hosts for _, hosts in self.holders})
        return twin

    def assignment_name(self, values: tuple[str, ...]) -> tuple[str, ...]:
        """Return the name of a lowest domain in assignments: a node's hostname, else the whole path."""
        return values[-1:] if self.of_nodes else values

    def contains(self, assignment_name: tuple[str, ...]) -> bool:
        """Return whether there is a domain of the lowest level with this name in assignments."""
        return assignment_name in self._found()

    def path(self, assignment_name: tuple[str, ...]) -> tuple[str, ...]:
        """Return the whole label path of the domain with this name in assignments; KeyError if there is none."""
        return (*self._found()[assignment_name].path, assignment_name[-1])

    def add_usage(self, usage: Iterable[Usage]) -> None:
        """Add the usage of pods in known domains; pods that run elsewhere use nothing here."""
        for each in usage:
            hosts = None if each.domain is None else self._found().get(each.domain)
            if hosts is not None and each.domain is not None:
                use(hosts, each.domain[-1], each)

    def _found(self) -> dict[tuple[str, ...], HostContents]:
        if self._hosts_by_name is None:
            self._hosts_by_name = {
                self.assignment_name((*hosts.path, name)): hosts for _, hosts in self.holders for name in hosts.nodes
            }
        return self._hosts_by_name


def build(nodes: Iterable[Node], *, levels: Sequence[str], flavor: ResourceFlavor, usage: Iterable[Usage]) -> Tree:
    """Return the tree of the nodes of `flavor`: ready, not cordoned, with its labels and all `levels`."""
    usage = list(usage)
    by_node: dict[str, list[Usage]] = {}
    for each in usage:
        if each.node is not None:
            by_node.setdefault(each.node, []).append(each)
    found: dict[tuple[str, ...], HostContents] = {}
    above, lowest, wanted = tuple(levels[:-1]), levels[-1], tuple(flavor.node_labels.items())
    for node in nodes:
        labels = node.labels
        if not node.ready or node.unschedulable or (wanted and any(labels.get(k) != v for k, v in wanted)):
            continue
        try:
            path, name = tuple([labels[level] for level in above]), labels[lowest]
        except KeyError:
            continue
        hosts = found.get(path)
        if hosts is None:
            hosts = found[path] = HostContents(path)
        hosts.nodes[name] = node if name not in hosts.nodes else _joined(hosts.nodes[name], node)
        if by_node:
            for each in by_node.get(node.name, ()):
                use(hosts, name, each)
    tree = Tree(levels)
    _link(tree, found)
    tree.add_usage(usage)
    return tree


def use(hosts: HostContents, name: str, usage: Usage) -> None:
    """Add the usage of pods on the host `name`, their slots included; a count below 0 takes it away again."""
    hosts.changes += 1
    used = hosts.used.setdefault(name, {})
    for resource, amount in usage.requests.items():
        used[resource] = used.get(resource, 0) + amount * usage.count
    used[PODS] = used.get(PODS, 0) + usage.count
    if usage.count < 0 and not any(used.values()):
        del hosts.used[name]


def _joined(first: Node, second: Node) -> Node:
    """Merge two nodes of one lowest domain, with the room of both. Kueue also merges nodes with equal hostnames."""
    room = {
        resource: first.allocatable.get(resource, 0) + second.allocatable.get(resource, 0)
        for resource in {**first.allocatable, **second.allocatable}
    }
    return replace(min(first, second, key=_by_name), allocatable=room)


def _link(tree: Tree, found: dict[tuple[str, ...], HostContents]) -> None:
    """Create the domains above the lowest level, in the order of their label paths, whatever that of the nodes."""
    known: dict[tuple[str, ...], Domain] = {(): tree.root}
    for path in sorted(found):
        for depth in range(1, len(path) + 1):
            if path[:depth] not in known:
                domain = known[path[:depth]] = Domain(path[: depth - 1], path[depth - 1])
                known[path[: depth - 1]].adopt(domain)
        known[path].hosts = found[path]
        tree.holders.append((known[path], found[path]))
