"""netns.topology.addressing: unique addresses, within the plan."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given

from netns.errors import TopologyError
from netns.topology.addressing import addressing, versions
from netns.topology.model import Link, Switch, Topology, leaf_spine, reference
from tests.netns.strategies import TOPOLOGIES


def test_addressing__reference() -> None:
    addresses = addressing(reference())
    assert addresses.main == {"h1": "10.0.1.1", "h2": "10.0.2.1"}
    assert addresses.pinned["h2"] == {f"spine{n}": f"10.10{n}.2.1" for n in (1, 2, 3, 4)}
    assert addresses.all_of("h1")[:2] == ("10.0.1.1", "10.101.1.1")
    assert addresses.transfer["h1", "leaf1"] == "10.255.0.0"
    assert addresses.owner("10.255.0.1") == "leaf1"
    assert addresses.owner("192.0.2.1") is None


def test_addressing__ipv6_reads_like_ipv4() -> None:
    addresses = addressing(replace(reference(), ipv6=True), version=6)
    assert addresses.main == {"h1": "fd53:5244:0:1::1", "h2": "fd53:5244:0:2::1"}
    assert addresses.pinned["h2"] == {f"spine{n}": f"fd53:5244:10{n}:2::1" for n in (1, 2, 3, 4)}
    assert addresses.transfer["h1", "leaf1"] == "fd53:5244:255::"
    assert addresses.owner("fd53:5244:255::1") == "leaf1"
    assert addresses.plane_prefix("spine1") == "fd53:5244:101::/48"
    assert addresses.hardware == addressing(reference()).hardware
    with pytest.raises(TopologyError, match=r"^reference: has no IPv6 addresses; set ipv6: true in its file$"):
        addressing(reference(), version=6)


@given(TOPOLOGIES)
def test_addressing__all_unique_and_inside_their_prefixes(topology: Topology) -> None:
    for version in versions(topology):
        addresses = addressing(topology, version=version)
        all_addresses = [address for host in topology.hosts for address in addresses.all_of(host)]
        all_addresses += addresses.transfer.values()
        assert len({ip_address(address) for address in all_addresses}) == len(all_addresses)
        assert all(str(ip_address(address)) == address for address in all_addresses), "as the kernel writes them"
        assert len(set(addresses.hardware.values())) == len(addresses.hardware) == 2 * len(topology.links)
        for host in topology.hosts:
            leaf = topology.switch_of(host)
            assert ip_address(addresses.main[host]) in ip_network(addresses.main_prefix(leaf))
            for spine, address in addresses.pinned[host].items():
                assert ip_address(address) in ip_network(addresses.pinned_prefix(leaf, spine=spine))
                assert ip_address(address) in ip_network(addresses.plane_prefix(spine))
        for link in topology.links:
            ends = addresses.transfer[link.a, link.b], addresses.transfer[link.b, link.a]
            pair = ip_network(f"{ends[0]}/{addresses.host_bits - 1}")
            assert ip_address(ends[1]) in pair


def test_addressing__too_large_bad_flow() -> None:
    with pytest.raises(TopologyError, match="leaf-spine: 155 spines; the address plan has room for 154"):
        addressing(leaf_spine(spines=155))
    addressing(leaf_spine(spines=154))


def test_addressing__too_many_hosts_bad_flow() -> None:
    hosts = tuple(f"h{index}" for index in range(255))
    topology = Topology("demo", hosts, (Switch("leaf1", "leaf"),), tuple(Link(host, "leaf1") for host in hosts))
    with pytest.raises(TopologyError, match="255 hosts on one switch"):
        addressing(topology)
