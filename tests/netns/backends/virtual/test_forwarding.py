"""netns.backends.virtual.forwarding: shortest paths, a hash of the 4-tuple, planes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netns.backends.virtual.forwarding import Forwarding
from netns.errors import TopologyError
from netns.topology.addressing import versions
from netns.topology.model import Ecmp, Topology, leaf_spine
from tests.netns.strategies import TOPOLOGIES

FABRIC = leaf_spine(leaves=2, spines=4, hosts_per_leaf=2, seed=3)


def spines(forwarding: Forwarding, *, source: str, destination: str, ports: int = 256) -> list[str]:
    found = []
    for port in range(ports):
        route = forwarding.route(source, source_port=49152 + port, destination=destination, destination_port=1)
        found.append(route[2])
    return found


@given(TOPOLOGIES, st.integers(0, 65535), st.data())
def test_route__is_a_shortest_path(topology: Topology, port: int, data: st.DataObject) -> None:
    forwarding = Forwarding(topology)
    if len(topology.hosts) < 2:
        return
    first, last = data.draw(st.permutations(topology.hosts))[:2]
    main = forwarding.addresses[data.draw(st.sampled_from(versions(topology)))].main
    route = forwarding.route(main[first], source_port=port, destination=main[last], destination_port=9)
    assert (route[0], route[-1]) == (first, last)
    assert len(route) - 1 == topology.distances(last)[first]
    names = {link.name for link in topology.links}
    assert all({f"{a}-{b}", f"{b}-{a}"} & names for a, b in pairwise(route))


def test_route__spreads_ports_evenly_and_is_stable() -> None:
    taken = spines(Forwarding(FABRIC), source="10.0.1.1", destination="10.0.2.1")
    assert taken == spines(Forwarding(FABRIC), source="10.0.1.1", destination="10.0.2.1")
    shares = Counter(taken)
    assert set(shares) == {"spine1", "spine2", "spine3", "spine4"}
    assert max(shares.values()) < 1.5 * 256 / 4


def test_route__depends_on_every_part_of_the_tuple_and_on_the_seed() -> None:
    forwarding = Forwarding(FABRIC)
    base = spines(forwarding, source="10.0.1.1", destination="10.0.2.1")
    assert base != spines(forwarding, source="10.0.1.2", destination="10.0.2.1")
    assert base != spines(forwarding, source="10.0.1.1", destination="10.0.2.2")
    other = Forwarding(leaf_spine(leaves=2, spines=4, hosts_per_leaf=2, seed=4))
    assert base != spines(other, source="10.0.1.1", destination="10.0.2.1")
    by_port = {
        forwarding.route("10.0.1.1", source_port=1, destination="10.0.2.1", destination_port=port)[2]
        for port in range(64)
    }
    assert len(by_port) == 4


def test_route__under_one_switch() -> None:
    route = Forwarding(FABRIC).route("10.0.1.1", source_port=1, destination="10.0.1.2", destination_port=1)
    assert route == ("h1", "leaf1", "h2")


def test_route__bad_flow() -> None:
    forwarding = Forwarding(FABRIC)
    with pytest.raises(TopologyError, match=r"address 10\.9\.9\.9: no host of leaf-spine has it"):
        forwarding.route("10.0.1.1", source_port=1, destination="10.9.9.9", destination_port=1)
    with pytest.raises(TopologyError, match=r"both are h1"):
        forwarding.route("10.0.1.1", source_port=1, destination="10.0.1.1", destination_port=1)


def test_route__ipv6_has_hashes_of_its_own() -> None:
    forwarding = Forwarding(replace(FABRIC, ipv6=True))
    taken = spines(forwarding, source="fd53:5244:0:1::1", destination="fd53:5244:0:2::1")
    assert max(Counter(taken).values()) < 1.5 * 256 / 4
    assert taken != spines(forwarding, source="10.0.1.1", destination="10.0.2.1")


@pytest.mark.parametrize(("ecmp", "stay"), [("hash-threshold", False), ("resilient", True)])
def test_route__around_links_without_carrier(ecmp: Ecmp, stay: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """All flows of the failed spine move; the others keep their spine in resilient groups only."""
    forwarding = Forwarding(replace(FABRIC, ecmp=ecmp))
    before = spines(forwarding, source="10.0.1.1", destination="10.0.2.1")
    assert max(Counter(before).values()) < 1.5 * 256 / 4
    forwarding.dead = {frozenset(("leaf1", "spine2"))}
    after = spines(forwarding, source="10.0.1.1", destination="10.0.2.1")
    assert set(after) == {"spine1", "spine3", "spine4"}
    assert max(Counter(after).values()) < 1.5 * 256 / 3
    moved = [port for port in range(256) if before[port] not in ("spine2", after[port])]
    assert (not moved) == stay
    forwarding.dead = set()
    assert spines(forwarding, source="10.0.1.1", destination="10.0.2.1") == before


def test_route__all_links_down_uses_one_of_them() -> None:
    forwarding = Forwarding(FABRIC)
    forwarding.dead = {frozenset(("leaf1", spine)) for spine in FABRIC.spines}
    assert set(spines(forwarding, source="10.0.1.1", destination="10.0.2.1")) == set(FABRIC.spines)
