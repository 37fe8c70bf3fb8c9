"""The network-node layers of a fabric, derived from its Clos.

The switch of a host is its lowest layer. Above it, a switch's *height* is its distance from the nearest host; switches
up to a height h that reach each other without going higher are in one domain of the layer above those of height h - 1.
In a leaf-spine the lowest layer is the leaf and the next one the spines; in three tiers the layers are leaf, pod and
core. Layers that a small fabric does not have are the whole fabric, by its name, so that there are always three.

A host of a lab takes one rank: its only capacity is its slot in `pods`, because the lab's hosts share one machine.
"""

from __future__ import annotations

from typing import Final

from netns.errors import TopologyError
from netns.inventory.layers import MIN_LAYERS
from netns.inventory.nodes import HOSTNAME_LABEL, MAX_LAYERS, PODS, Node, layer_label
from netns.topology.model import Topology

INSTANCE_TYPE: Final = "srd-lab"


def nodes_of(topology: Topology, *, ranks_per_host: int = 1) -> tuple[Node, ...]:
    """Return the hosts of `topology` as nodes, in its order. TopologyError if it has more tiers than layers."""
    heights = _heights(topology)
    highest = max(heights.values())
    if highest > MAX_LAYERS:
        raise TopologyError(f"{topology.name}: has {highest} tiers of switches; there are at most {MAX_LAYERS} layers")
    domains = [
        {switch: _name(tops) for switch, tops in _domains(topology, heights, height).items()}
        for height in range(2, highest + 1)
    ]
    whole = topology.name.rstrip("-_.")
    nodes = []
    for host in topology.hosts:
        leaf = topology.switch_of(host)
        path = [leaf, *(domain[leaf] for domain in domains)]
        path += [whole] * (MIN_LAYERS - len(path))
        labels = {layer_label(layer): value for layer, value in enumerate(reversed(path), 1)}
        nodes.append(
            Node(
                host,
                labels={**labels, HOSTNAME_LABEL: host},
                allocatable={PODS: ranks_per_host},
                instance_type=INSTANCE_TYPE,
                zone=topology.name,
            )
        )
    return tuple(nodes)


def switches_of(topology: Topology) -> dict[str, tuple[str, ...]]:
    """Return the switches of which each domain above the leaves is made, by its name: its highest ones."""
    heights = _heights(topology)
    found = (_domains(topology, heights, height).values() for height in range(2, max(heights.values()) + 1))
    return {_name(switches): switches for domains in found for switches in domains}


def _heights(topology: Topology) -> dict[str, int]:
    """Return each switch's distance from the nearest host: 1 for the switches of hosts."""
    leaves = dict.fromkeys(topology.switch_of(host) for host in topology.hosts)
    distances = topology.distances(*leaves, avoiding=set(topology.hosts))
    return {switch: distance + 1 for switch, distance in distances.items()}


def _name(switches: tuple[str, ...]) -> str:
    """Return the name of a domain with these highest switches."""
    return switches[0] if len(switches) == 1 else f"{switches[0]}-{switches[-1]}"


def _domains(topology: Topology, heights: dict[str, int], height: int) -> dict[str, tuple[str, ...]]:
    """Return for each switch up to `height` its domain: the highest switches of it."""
    names: dict[str, tuple[str, ...]] = {}
    others = {node for node in topology.nodes if heights.get(node, height + 1) > height}
    for start in topology.nodes:
        if start in names or start in others:
            continue
        members = topology.distances(start, avoiding=others)
        top = max(heights[member] for member in members)
        highest = tuple(node for node in topology.nodes if node in members and heights[node] == top)
        names |= dict.fromkeys(members, highest)
    return names
