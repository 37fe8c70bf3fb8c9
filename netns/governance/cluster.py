"""What an operator defines: flavors, queues, cohorts, priority classes, settings; and the state made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from netns.governance.model import ClusterQueue, Cohort, LocalQueue
from netns.governance.room import Room
from netns.governance.settings import Settings
from netns.governance.state import State
from netns.inventory.layers import levels_of
from netns.inventory.nodes import Node
from netns.placement.model import ResourceFlavor


@dataclass(frozen=True, slots=True)
class Cluster:
    """All of it. `|` joins two."""

    flavors: tuple[ResourceFlavor, ...] = ()
    queues: tuple[ClusterQueue, ...] = ()
    cohorts: tuple[Cohort, ...] = ()
    local_queues: tuple[LocalQueue, ...] = ()
    priorities: Mapping[str, int] = field(default_factory=dict)
    """The values of priority classes."""

    topologies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Label keys from the widest to the narrowest, by name."""

    settings: Settings = field(default_factory=Settings)

    def __or__(self, other: Cluster) -> Cluster:
        return Cluster(
            (*self.flavors, *other.flavors),
            (*self.queues, *other.queues),
            (*self.cohorts, *other.cohorts),
            (*self.local_queues, *other.local_queues),
            {**self.priorities, **other.priorities},
            {**self.topologies, **other.topologies},
            other.settings if self.settings == Settings() else self.settings,
        )

    def state(self, nodes: Sequence[Node] = ()) -> State:
        """Return an empty state. With nodes, all pods are placed on those of their flavor, by topology.

        A label that no node has selects nothing: a lab's nodes have those of their place alone.
        """
        known = {key for node in nodes for key in node.labels}
        rooms, flavors = {}, list(self.flavors)
        for index, flavor in enumerate(self.flavors if nodes else ()):
            labels = {key: value for key, value in flavor.node_labels.items() if key in known}
            levels = self.topologies.get(flavor.topology or "") or levels_of(nodes)
            chosen = replace(flavor, node_labels=labels, topology=flavor.topology or "nodes")
            rooms[flavor.name] = Room(nodes, levels=levels, flavor=chosen)
            flavors[index] = replace(flavor, topology="nodes")
        return State(
            self.settings,
            flavors=flavors,
            queues=self.queues,
            cohorts=self.cohorts,
            local_queues=self.local_queues,
            rooms=rooms,
        )
