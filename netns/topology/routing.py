"""Next hops: all shortest paths by hop count (ECMP), over the whole fabric or one plane of it.

A *plane* is the fabric with only one of its spines. In a leaf-spine fabric every host is reachable in the plane of
every spine, so an address can be pinned to a spine; a spine whose plane does not connect all hosts has no pinned
addresses. Hosts never forward: with one link each they cannot be inside a shortest path.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from netns.topology.model import Topology


def next_hops(
    topology: Topology, *, towards: str, avoiding: frozenset[str] = frozenset()
) -> Mapping[str, tuple[str, ...]]:
    """For each node that reaches `towards` without crossing `avoiding`: the neighbours on its shortest paths.

    Neighbours are in the order of the node's links, the same on every run; `towards` itself has none.
    """
    distance = topology.distances(towards, avoiding=avoiding)
    return {
        node: tuple(
            other
            for link in topology.links_of[node]
            if (other := link.other(node)) in distance and distance[other] == hops - 1
        )
        for node, hops in distance.items()
    }


def delay_and_rate(topology: Topology, source: str, target: str) -> tuple[float, float]:
    """Return the least delay, in s, and the rate, in bit/s, of all shortest paths together.

    Of each stage of links the least delay and the sum of the rates; of the rates the smallest sum.
    """
    hops = next_hops(topology, towards=target)
    stage, delay_us, rate_bps = {source}, 0.0, math.inf
    while stage != {target}:
        links = [link for node in stage for link in topology.links_of[node] if link.other(node) in hops[node]]
        shapes = [link.shape_ab if link.a in stage else link.shape_ba for link in links]
        delay_us += min(shape.delay_us if shape else 0 for shape in shapes)
        rate_bps = min(rate_bps, sum(shape.rate_bps or math.inf if shape else math.inf for shape in shapes))
        stage = {hop for node in stage for hop in hops[node]}
    return delay_us / 1e6, rate_bps


def planes(topology: Topology) -> Mapping[str, frozenset[str]]:
    """For each spine whose plane connects all hosts: the other spines, which the plane avoids."""
    spines = frozenset(topology.spines)
    found = {}
    for spine in topology.spines:
        avoiding = spines - {spine}
        if set(topology.hosts) <= topology.distances(topology.hosts[0], avoiding=avoiding).keys():
            found[spine] = avoiding
    return found
