"""netns.topology.routing: shortest paths, all of them, over the fabric and over one spine's plane."""

from __future__ import annotations

from hypothesis import given

from netns.topology.model import Link, Switch, Topology
from netns.topology.routing import next_hops, planes
from tests.netns.strategies import TOPOLOGIES


def test_planes__a_spine_that_does_not_connect_all_hosts_has_none() -> None:
    switches = (Switch("l1", "leaf"), Switch("l2", "leaf"), Switch("s1", "spine"), Switch("s2", "spine"))
    links = (Link("h1", "l1"), Link("h2", "l2"), Link("l1", "s1"), Link("s1", "l2"), Link("s2", "l1"))
    assert planes(Topology("demo", ("h1", "h2"), switches, links)) == {"s1": frozenset({"s2"})}


@given(TOPOLOGIES)
def test_next_hops__each_is_one_step_nearer(topology: Topology) -> None:
    for target in topology.nodes:
        distance = topology.distances(target)
        assert set(distance) == set(topology.nodes)
        for node, hops in next_hops(topology, towards=target).items():
            assert bool(hops) == (node != target)
            assert all(distance[hop] == distance[node] - 1 for hop in hops)
            assert not set(hops) & set(topology.hosts) - {target}, "hosts do not forward"
