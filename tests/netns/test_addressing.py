"""netns.addressing: everyone has addresses of their own, within the plan."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import given

from netns.addressing import addressing
from netns.errors import TopologyError
from netns.topology import Link, Switch, Topology, leaf_spine, reference
from tests.netns.strategies import TOPOLOGIES


def test_addressing__reference() -> None:
    addresses = addressing(reference())
    assert addresses.main == {"h1": "10.0.1.1", "h2": "10.0.2.1"}
    assert addresses.pinned["h2"] == {f"spine{n}": f"10.10{n}.2.1" for n in (1, 2, 3, 4)}
    assert addresses.all_of("h1")[:2] == ("10.0.1.1", "10.101.1.1")
    assert addresses.transfer["h1", "leaf1"] == "10.255.0.0"
    assert addresses.owner("10.255.0.1") == "leaf1"
    assert addresses.owner("192.0.2.1") is None


@given(TOPOLOGIES)
def test_addressing__all_unique_and_inside_their_prefixes(topology: Topology) -> None:
    addresses = addressing(topology)
    everyone = [address for host in topology.hosts for address in addresses.all_of(host)]
    everyone += addresses.transfer.values()
    assert len({IPv4Address(address) for address in everyone}) == len(everyone)
    assert len(set(addresses.hardware.values())) == len(addresses.hardware) == 2 * len(topology.links)
    for host in topology.hosts:
        leaf = topology.switch_of(host)
        assert IPv4Address(addresses.main[host]) in IPv4Network(addresses.main_prefix(leaf))
        for spine, address in addresses.pinned[host].items():
            assert IPv4Address(address) in IPv4Network(addresses.pinned_prefix(leaf, spine=spine))
            assert IPv4Address(address) in IPv4Network(addresses.plane_prefix(spine))
    for link in topology.links:
        ends = IPv4Address(addresses.transfer[link.a, link.b]), IPv4Address(addresses.transfer[link.b, link.a])
        assert IPv4Network((ends[0], 31)) == IPv4Network((int(ends[1]) & ~1, 31))


def test_addressing__too_large_bad_flow() -> None:
    with pytest.raises(TopologyError, match="leaf-spine: 155 spines; the address plan has room for 154"):
        addressing(leaf_spine(spines=155))
    addressing(leaf_spine(spines=154))


def test_addressing__too_many_hosts_bad_flow() -> None:
    hosts = tuple(f"h{index}" for index in range(255))
    topology = Topology("demo", hosts, (Switch("leaf1", "leaf"),), tuple(Link(host, "leaf1") for host in hosts))
    with pytest.raises(TopologyError, match="255 hosts on one switch"):
        addressing(topology)
