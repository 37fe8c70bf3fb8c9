"""Topologies of cells, and what an empty fabric could do. Pure.

The ideal completion time of a flow is one round trip of propagation and its bytes over the largest flow that the links
between the two hosts allow, headers not counted: no transport is faster. Slowdown is the measured time over the ideal.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict, deque
from collections.abc import Collection, Iterator
from dataclasses import replace

from netns.netem.shape import Shape
from netns.topology.model import Link, Topology
from srd.compare.grid import Condition


def conditioned(topology: Topology, condition: Condition, *, name: str, seed: int) -> Topology:
    """Return the topology of a cell: the condition's shape on each link from a spine, so that a path has it once.

    In a fabric without spines it is on each shaped direction. Raises ShapeError.
    """
    links = tuple(_changed(topology, link, condition) for link in topology.links)
    return replace(topology, name=name, seed=seed, links=links, captures=())


def _changed(topology: Topology, link: Link, condition: Condition) -> Link:
    spines = topology.spines

    def shape(given: Shape | None, *, sender: str) -> Shape | None:
        if given is None or not condition.shape or (spines and sender not in spines):
            return given
        return given.changed(condition.shape, base=condition.base)

    return replace(link, shape_ab=shape(link.shape_ab, sender=link.a), shape_ba=shape(link.shape_ba, sender=link.b))


def uplink_bps(topology: Topology) -> float:
    """Return the capacity from all leaves that have hosts towards the fabric, together; infinite if one is unshaped."""
    leaves = {topology.switch_of(host) for host in topology.hosts}
    return sum(rate for node, other, rate, _ in directions(topology) if node in leaves and other not in topology.hosts)


def links_that_can_fail(topology: Topology) -> list[str]:
    """Return the names of the links between switches."""
    return [link.name for link in topology.links if link.a not in topology.hosts and link.b not in topology.hosts]


def ways_up(topology: Topology, hosts: Collection[str]) -> list[tuple[str, str]]:
    """Return (switch, spine) of each link to a spine from a switch over these hosts: leaf, or next above."""
    leaves = {topology.switch_of(host) for host in hosts}
    below = leaves | {link.other(leaf) for leaf in leaves for link in topology.links_of[leaf]}
    below -= {*topology.hosts, *topology.spines}
    return [
        (switch, spine)
        for spine in topology.spines
        for link in topology.links_of[spine]
        if (switch := link.other(spine)) in below
    ]


def directions(topology: Topology) -> Iterator[tuple[str, str, float, float]]:
    """Yield each direction of each link: from, to, bit/s (infinite without a rate), delay in seconds."""
    for link in topology.links:
        for node, other, shape in ((link.a, link.b, link.shape_ab), (link.b, link.a, link.shape_ba)):
            rate = float(shape.rate_bps) if shape and shape.rate_bps else math.inf
            yield node, other, rate, (shape.delay_us / 1e6 if shape else 0.0)


class Ideal:
    """What an empty fabric does with a flow."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._known: dict[tuple[str, str], tuple[float, float]] = {}

    def seconds(self, source: str, destination: str, *, size_bytes: int) -> float:
        """Return the shortest possible completion time."""
        rtt_s, capacity_bps = self.path(source, destination)
        return rtt_s + 8 * size_bytes / capacity_bps

    def path(self, source: str, destination: str) -> tuple[float, float]:
        """Return round trip and capacity between two hosts."""
        pair = (source, destination)
        if pair not in self._known:
            rtt_s = _delay_s(self._topology, source, destination) + _delay_s(self._topology, destination, source)
            self._known[pair] = rtt_s, _largest_flow_bps(self._topology, source, destination)
        return self._known[pair]


def _delay_s(topology: Topology, source: str, destination: str) -> float:
    """Return the shortest delay (Dijkstra)."""
    onward: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for node, other, _, delay_s in directions(topology):
        onward[node].append((other, delay_s))
    best, queue = {source: 0.0}, [(0.0, source)]
    while queue:
        at_s, node = heapq.heappop(queue)
        for other, delay_s in onward[node]:
            if at_s + delay_s < best.get(other, math.inf):
                best[other] = at_s + delay_s
                heapq.heappush(queue, (best[other], other))
    return best[destination]


def _largest_flow_bps(topology: Topology, source: str, destination: str) -> float:
    """Return the maximum flow (Edmonds and Karp, JACM 19(2), 1972)."""
    left: dict[str, dict[str, float]] = defaultdict(dict)
    for node, other, rate, _ in directions(topology):
        left[node][other] = rate
    total = 0.0
    while (path := _augmenting(left, source, destination)) is not None:
        amount = min(left[node][other] for node, other in path)
        if math.isinf(amount):
            return math.inf
        for node, other in path:
            left[node][other] -= amount
            left[other][node] = left[other].get(node, 0.0) + amount
        total += amount
    return total


def _augmenting(left: dict[str, dict[str, float]], source: str, destination: str) -> list[tuple[str, str]] | None:
    before, queue = {source: source}, deque([source])
    while queue and destination not in before:
        node = queue.popleft()
        for other, rate in left[node].items():
            if rate > 0 and other not in before:
                before[other] = node
                queue.append(other)
    if destination not in before:
        return None
    path, node = [], destination
    while node != source:
        path.append((before[node], node))
        node = before[node]
    return path
