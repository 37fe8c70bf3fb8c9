"""Topologies of cells, and what an empty fabric could do. Pure.

The ideal completion time of a flow is one round trip of propagation and its bytes over the rate of all shortest paths
between the two hosts, headers not counted: no transport is faster. Slowdown is the measured time over the ideal.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from functools import cache

from netns.netem.shape import Shape
from netns.topology.model import Link, Topology
from netns.topology.routing import delay_and_rate
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
    up = ((link, leaf) for leaf in leaves for link in topology.links_of[leaf] if link.other(leaf) not in topology.hosts)
    shapes = (link.shape_ab if link.a == leaf else link.shape_ba for link, leaf in up)
    return sum(shape.rate_bps or math.inf if shape else math.inf for shape in shapes)


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


class Ideal:
    """What an empty fabric does with a flow."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self.path = cache(self._path)

    def seconds(self, source: str, destination: str, *, size_bytes: int) -> float:
        """Return the shortest possible completion time."""
        rtt_s, capacity_bps = self.path(source, destination)
        return rtt_s + 8 * size_bytes / capacity_bps

    def _path(self, source: str, destination: str) -> tuple[float, float]:
        """Return round trip and capacity between two hosts."""
        there_s, capacity_bps = delay_and_rate(self._topology, source, destination)
        back_s, _ = delay_and_rate(self._topology, destination, source)
        return there_s + back_s, capacity_bps
