"""The domains of a topology as a tree, built from plain nodes in one pass over them.

Built anew for every assignment. With 25,000 nodes the time goes to memory, not to arithmetic (scripts/bench placement):
hence no object for a node, only an entry in the domain that it hangs on (part.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import attrgetter

from netns.inventory.nodes import HOSTNAME_LABEL, PODS, Node
from netns.placement.domain import Domain, Hosts
from netns.placement.model import Flavor, Usage

_by_name = attrgetter("name")


class Tree:
    """All domains."""

    def __init__(self, levels: Sequence[str]) -> None:
        self.levels = tuple(levels)
        """Label keys, from the widest to the narrowest."""
        self.root = Domain((), "")
        """The whole: above the domains of the first level."""
        self.holders: list[tuple[Domain, Hosts]] = []
        """The domains just above the lowest level (the whole, where there is one level), and what lies in them."""
        self._places: dict[tuple[str, ...], Hosts] | None = None

    @property
    def of_nodes(self) -> bool:
        """Whether the lowest level is that of nodes: only then can taints and selectors be looked at."""
        return self.levels[-1] == HOSTNAME_LABEL

    def at(self, level: int) -> list[Domain]:
        """The domains of one level, in the order of their label paths."""
        parts = self.root.children
        for _ in range(level):
            parts = [child for part in parts for child in part.children]
        return parts

    def called(self, values: tuple[str, ...]) -> tuple[str, ...]:
        """How assignments call a domain of the lowest level: a node by its hostname, else by the whole path."""
        return values[-1:] if self.of_nodes else values

    def knows(self, called: tuple[str, ...]) -> bool:
        """Whether there is a domain of the lowest level that assignments call so."""
        return called in self._found()

    def path(self, called: tuple[str, ...]) -> tuple[str, ...]:
        """The whole label path of the domain that assignments call so; KeyError if there is none."""
        return (*self._found()[called].path, called[-1])

    def add_usage(self, usage: Iterable[Usage]) -> None:
        """Take what pods use that run in known domains; others run elsewhere and take nothing here."""
        for each in usage:
            hosts = None if each.domain is None else self._found().get(each.domain)
            if hosts is not None and each.domain is not None:
                use(hosts, each.domain[-1], each)

    def _found(self) -> dict[tuple[str, ...], Hosts]:
        if self._places is None:
            self._places = {
                self.called((*hosts.path, name)): hosts for _, hosts in self.holders for name in hosts.nodes
            }
        return self._places


def build(nodes: Iterable[Node], *, levels: Sequence[str], flavor: Flavor, usage: Iterable[Usage]) -> Tree:
    """The tree of the nodes that belong to `flavor`: ready, not cordoned, with its labels and all `levels`."""
    usage = list(usage)
    by_node: dict[str, list[Usage]] = {}
    for each in usage:
        if each.node is not None:
            by_node.setdefault(each.node, []).append(each)
    found: dict[tuple[str, ...], Hosts] = {}
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
            hosts = found[path] = Hosts(path)
        hosts.nodes[name] = node if name not in hosts.nodes else _joined(hosts.nodes[name], node)
        if by_node:
            for each in by_node.get(node.name, ()):
                use(hosts, name, each)
    tree = Tree(levels)
    _link(tree, found)
    tree.add_usage(usage)
    return tree


def use(hosts: Hosts, name: str, usage: Usage) -> None:
    """Take what pods use on the host `name`, their slots included."""
    used = hosts.used.setdefault(name, {})
    for resource, amount in usage.requests.items():
        used[resource] = used.get(resource, 0) + amount * usage.count
    used[PODS] = used.get(PODS, 0) + usage.count


def _joined(first: Node, second: Node) -> Node:
    """Nodes of one lowest domain as one that can give what both can. To Kueue, too, a hostname given twice is one."""
    room = {
        resource: first.allocatable.get(resource, 0) + second.allocatable.get(resource, 0)
        for resource in {**first.allocatable, **second.allocatable}
    }
    return replace(min(first, second, key=_by_name), allocatable=room)


def _link(tree: Tree, found: dict[tuple[str, ...], Hosts]) -> None:
    """Make the domains above the lowest level, in the order of their label paths, whatever that of the nodes."""
    known: dict[tuple[str, ...], Domain] = {(): tree.root}
    for path in sorted(found):
        for depth in range(1, len(path) + 1):
            if path[:depth] not in known:
                part = known[path[:depth]] = Domain(path[: depth - 1], path[depth - 1])
                known[path[: depth - 1]].adopt(part)
        known[path].hosts = found[path]
        tree.holders.append((known[path], found[path]))
