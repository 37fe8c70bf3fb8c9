"""The nodes of a flavor with a topology, and what of them is taken: netns.placement decides where pods go.

One tree is kept as workloads come and go, one of the nodes without workloads for "would it fit if all were gone". Nodes
that report no capacity but slots for pods (a lab's) have no limit of other resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from netns.inventory.nodes import PODS, Node
from netns.placement.groups import Results, assign_in
from netns.placement.model import (
    DEFAULT_PROFILE,
    PlacementRequest,
    Profile,
    ResourceFlavor,
    TopologyAssignment,
    Usage,
)
from netns.placement.tree import build


class Room:
    """The nodes of one flavor."""

    def __init__(
        self,
        nodes: Sequence[Node],
        *,
        levels: Sequence[str],
        flavor: ResourceFlavor,
        usage: Iterable[Usage] = (),
        profile: Profile = DEFAULT_PROFILE,
    ) -> None:
        """`levels`: label keys from the widest to the narrowest; `usage`: pods that nobody here queues."""
        self.levels = tuple(levels)
        self._flavor, self._profile = flavor, profile
        others = list(usage)
        self._counts = any(resource != PODS for node in nodes for resource in node.allocatable)
        self._tree = build(nodes, levels=levels, flavor=flavor, usage=others)
        self._empty = build(nodes, levels=levels, flavor=flavor, usage=others)

    def take(self, assignment: TopologyAssignment, requests: Mapping[str, int], *, sign: int = 1) -> None:
        """Take the room of pods with these requests, or give it back with the sign -1."""
        taken = requests if self._counts else {}
        self._tree.add_usage(
            Usage(taken, count=sign * domain.count, domain=domain.values) for domain in assignment.domains
        )

    def place(self, requests: Sequence[PlacementRequest], *, empty: bool) -> Results:
        """Assign the pods; `empty`: as if no workload were there. Nothing is taken."""
        if not self._counts:
            requests = [replace(request, requests={}) for request in requests]
        tree = self._empty if empty else self._tree
        return assign_in(tree, requests=requests, profile=self._profile, flavor=self._flavor)
