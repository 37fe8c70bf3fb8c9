"""netns.lab.plan: every plan is undone by name, obeys the kernel's limits, and routes as documented.

Routing is checked by following packets through the plan's own tables, over every choice that ECMP could make.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from itertools import product
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netns.errors import LabError, TopologyError
from netns.lab.operations import (
    AddAddress,
    AddNamespace,
    AddNeighbour,
    AddNexthop,
    AddNexthopGroup,
    AddRoute,
    AddRule,
    AddTap,
    AddVeth,
    Hop,
    Operation,
    SetNetem,
    SetState,
    SetSysctl,
    StartRelay,
    SyncCarrier,
    undo,
)
from netns.lab.plan import MAX_TAP_MTU, Backend, Nexthops, derive_seed, namespace, plan, shape_seed
from netns.netem.shape import Shape
from netns.topology.addressing import addressing, versions
from netns.topology.model import Link, Switch, Topology, leaf_spine, reference
from netns.topology.routing import planes
from tests.netns.strategies import LEAF_SPINES, TOPOLOGIES

FABRICS = st.sampled_from(get_args(Backend))
MAIN_TABLE = None
Address = IPv4Address | IPv6Address


class Walker:
    """Forwards packets as the routers of a plan would."""

    def __init__(self, topology: Topology, steps: Sequence[Operation]) -> None:
        self.nodes = {namespace(topology, node): node for node in topology.nodes}
        self.routes = defaultdict(list)
        self.rules = defaultdict(list)
        self.local = defaultdict(set)
        for step in steps:
            if isinstance(step, AddRoute):
                anywhere = "::/0" if ":" in step.hops[0].gateway else "0.0.0.0/0"
                destination = ip_network(anywhere if step.destination == "default" else step.destination)
                self.routes[self.nodes[step.netns], step.table].append((destination, step.hops))
            elif isinstance(step, AddRule):
                self.rules[self.nodes[step.netns]].append((ip_network(step.source), step.table))
            elif isinstance(step, AddAddress):
                self.local[self.nodes[step.netns]].add(ip_address(step.address.split("/")[0]))

    def next_nodes(self, node: str, *, source: Address, destination: Address) -> list[str]:
        tables = [table for network, table in self.rules[node] if source in network]
        for table in (*tables, MAIN_TABLE):
            matching = [route for route in self.routes[node, table] if destination in route[0]]
            if matching:
                _, hops = max(matching, key=lambda route: route[0].prefixlen)
                for hop in hops:
                    assert ip_address(hop.gateway) in self.local[hop.ifname], "an interface is named after its peer"
                return [hop.ifname for hop in hops]
        return []

    def paths(self, node: str, *, source: str, destination: str, ttl: int = 16) -> Iterator[tuple[str, ...]]:
        """Every path that a packet of these addresses may take from `node`."""
        assert ttl, "a loop"
        if ip_address(destination) in self.local[node]:
            yield (node,)
            return
        nexts = self.next_nodes(node, source=ip_address(source), destination=ip_address(destination))
        assert nexts, f"{node} has no route to {destination}"
        for following in nexts:
            for rest in self.paths(following, source=source, destination=destination, ttl=ttl - 1):
                yield (node, *rest)


@given(topology=TOPOLOGIES, fabric=FABRICS)
def test_plan__everything_created_is_undone(topology: Topology, fabric: Backend) -> None:
    steps = plan(topology, fabric)
    made = [step.netns for step in steps if isinstance(step, AddNamespace)]
    assert made == [f"{topology.name}-{node}" for node in topology.nodes]
    assert len(set(made)) == len(made)
    relays = [step for step in steps if isinstance(step, StartRelay)]
    assert len(relays) <= 1
    assert undo(steps) == [f"relay stop {topology.name}"] * len(relays) + [
        f"netns delete {each}" for each in made[::-1]
    ]
    inside = {step.netns for step in steps if not isinstance(step, AddNamespace | StartRelay)}
    assert inside <= set(made), "all else is inside the lab's own namespaces"


@given(topology=TOPOLOGIES, fabric=FABRICS)
def test_plan__routes_come_when_the_kernel_has_seen_all_carriers_of_their_node(
    topology: Topology, fabric: Backend
) -> None:
    """Otherwise it refuses routes of IPv6 over them, and drops what is sent at once."""
    seen, not_up = (
        set[tuple[str, str]](),
        {end for link in topology.links for end in ((link.a, link.b), (link.b, link.a))},
    )
    relays = fabric == "relay" and any(link.shaped for link in topology.links)
    for step in plan(topology, fabric):
        match step:
            case SetState():
                not_up.discard((step.netns.removeprefix(f"{topology.name}-"), step.ifname))
            case StartRelay():
                relays = False
            case SyncCarrier():
                assert not not_up
                assert not relays
                seen.add((step.netns, step.ifname))
            case AddRoute() | AddNexthop():
                node = step.netns.removeprefix(f"{topology.name}-")
                assert {(step.netns, link.other(node)) for link in topology.links_of[node]} <= seen
    assert len(seen) == 2 * len(topology.links)


@given(topology=TOPOLOGIES, fabric=FABRICS)
def test_plan__obeys_the_kernels_limits(topology: Topology, fabric: Backend) -> None:
    steps = plan(topology, fabric)
    interfaces: Counter[tuple[str, str]] = Counter()
    for step in steps:
        if isinstance(step, AddVeth):
            interfaces.update([(step.netns, step.ifname), (step.peer_netns, step.peer_ifname)])
        elif isinstance(step, AddTap):
            interfaces.update([(step.netns, step.ifname)])
    assert len(interfaces) == 2 * len(topology.links)
    assert max(interfaces.values(), default=1) == 1
    assert all(len(ifname) <= 15 for _, ifname in interfaces)
    addresses = [step.address for step in steps if isinstance(step, AddAddress)]
    assert len(set(addresses)) == len(addresses)
    assert all("\n" not in str(step) for step in steps)


@given(topology=TOPOLOGIES, fabric=FABRICS)
def test_plan__shapes_are_where_the_topology_has_them(topology: Topology, fabric: Backend) -> None:
    steps = plan(topology, fabric)
    shaped = [link for link in topology.links if link.shaped]
    if fabric == "kernel":
        netems = {(step.netns, step.ifname) for step in steps if isinstance(step, SetNetem)}
        wanted = {(namespace(topology, link.a), link.b) for link in shaped if link.shape_ab is not None}
        wanted |= {(namespace(topology, link.b), link.a) for link in shaped if link.shape_ba is not None}
        assert netems == wanted
        assert not any(isinstance(step, AddTap | StartRelay) for step in steps)
    else:
        relayed = [link for step in steps if isinstance(step, StartRelay) for link in step.links]
        assert [link.name for link in relayed] == [link.name for link in shaped]
        assert [(link.shape_ab, link.shape_ba) for link in relayed] == [
            (link.shape_ab or Shape(), link.shape_ba or Shape()) for link in shaped
        ]
        assert sum(isinstance(step, AddTap) for step in steps) == 2 * len(shaped)
        assert not any(isinstance(step, SetNetem) for step in steps)


@settings(max_examples=50)
@given(topology=TOPOLOGIES)
def test_plan__main_addresses_are_reached_over_every_shortest_path(topology: Topology) -> None:
    walker = Walker(topology, plan(topology, "kernel"))
    for source, destination, version in product(topology.hosts, topology.hosts, versions(topology)):
        main = addressing(topology, version=version).main
        lengths = {len(path) for path in walker.paths(source, source=main[source], destination=main[destination])}
        assert len(lengths) == 1, "ECMP mixes only paths of one length"


@settings(max_examples=50)
@given(topology=LEAF_SPINES)
def test_plan__every_spine_is_offered(topology: Topology) -> None:
    walker = Walker(topology, plan(topology, "relay"))
    for source, destination, version in product(topology.hosts, topology.hosts, versions(topology)):
        if topology.switch_of(source) != topology.switch_of(destination):
            main = addressing(topology, version=version).main
            paths = walker.paths(source, source=main[source], destination=main[destination])
            assert {path[2] for path in paths} == set(topology.spines)


@settings(max_examples=50)
@given(topology=TOPOLOGIES)
def test_plan__pinned_addresses_cross_their_spine_only(topology: Topology) -> None:
    walker = Walker(topology, plan(topology, "kernel"))
    for source, destination, version in product(topology.hosts, topology.hosts, versions(topology)):
        addresses = addressing(topology, version=version)
        pinned, main = addresses.pinned, addresses.main
        for spine, avoided in planes(topology).items():
            for ends in (
                (main[source], pinned[destination][spine]),
                (pinned[source][spine], main[destination]),
                (pinned[source][spine], pinned[destination][spine]),
            ):
                for path in walker.paths(source, source=ends[0], destination=ends[1]):
                    assert not avoided & set(path)


@given(topology=TOPOLOGIES)
def test_plan__neighbours_are_who_is_there(topology: Topology) -> None:
    steps = plan(topology, "kernel")
    hardware = {}
    for step in steps:
        if isinstance(step, AddVeth):
            hardware[step.netns, step.ifname] = step.peer_hardware
            hardware[step.peer_netns, step.peer_ifname] = step.hardware
    for version in versions(topology):
        addresses = [
            step for step in steps if isinstance(step, AddNeighbour) and (":" in step.address) == (version == 6)
        ]
        assert {(step.netns, step.ifname): step.hardware for step in addresses} == hardware


def test_plan__routers_differ_in_their_hash() -> None:
    steps = plan(leaf_spine(leaves=4, spines=4), "kernel")
    seeds = {step.netns: step.value for step in steps if isinstance(step, SetSysctl) and step.key.endswith("hash_seed")}
    assert len(seeds) == len(set(seeds.values())) == 8
    assert all(0 < seed < 2**32 for seed in seeds.values())


def test_plan__follows_from_the_seed() -> None:
    assert plan(leaf_spine(seed=3), "kernel") == plan(leaf_spine(seed=3), "kernel")
    assert plan(leaf_spine(seed=3), "kernel") != plan(leaf_spine(seed=4), "kernel")


def test_plan__tap_mtu_bad_flow() -> None:
    with pytest.raises(TopologyError, match=f"mtu: 65535 is more than a TAP device carries; use at most {MAX_TAP_MTU}"):
        plan(leaf_spine(mtu=65535, shape=Shape()), "relay")
    plan(leaf_spine(mtu=65535, shape=Shape()), "kernel")


SPINES = ((1, 5), (2, 7), (3, 9), (4, 11))
HOST_SHAPED = Topology(
    name="demo",
    hosts=("h1",),
    switches=(Switch("leaf1", "leaf"),),
    links=(Link("leaf1", "h1", None, Shape(rate_bps=1000)),),
)


@pytest.mark.parametrize("fabric", get_args(Backend))
@pytest.mark.parametrize(
    ("topology", "message"),
    [
        (
            HOST_SHAPED,
            r"link leaf1-h1: shape_ba: what a host sends is shaped in the virtual backend only; shape the other",
        ),
        (
            leaf_spine(shape=Shape(rate_bps=1000, ce_threshold_us=5)),
            r"link leaf1-spine1: shape_ab: ce_threshold: neither netem nor the relay marks",
        ),
    ],
)
def test_plan__virtual_only_features_bad_flow(topology: Topology, message: str, fabric: Backend) -> None:
    with pytest.raises(LabError, match=message):
        plan(topology, fabric)


def test_derive_seed__is_pinned() -> None:
    """Results are quoted by seed: the derivation must not change from one version to the next."""
    assert derive_seed(1, label="leaf1/ecmp") == 1869975907
    assert derive_seed(2, label="leaf1/ecmp") != derive_seed(1, label="leaf1/ecmp")
    assert derive_seed(1, label="leaf2/ecmp") != derive_seed(1, label="leaf1/ecmp")


def test_shape_seed__own_before_derived() -> None:
    shapes = Shape(seed=77), Shape()
    link = Link("leaf1", "spine1", *shapes)
    topology = Topology("x", ("h1",), (Switch("leaf1", "leaf"), Switch("spine1", "spine")), (Link("h1", "leaf1"), link))
    assert shape_seed(topology, link, direction="ab") == 77
    assert shape_seed(topology, link, direction="ba") == derive_seed(1, label="leaf1-spine1/ba")


def test_plan__reference_reads_well() -> None:
    lines = [str(step) for step in plan(reference(), "relay")]
    assert lines[0] == "netns add reference-h1"
    assert "tap reference-leaf1:spine1 mtu 9000 txqueuelen 10000" in lines
    assert "veth reference-h1:leaf1 - reference-leaf1:h1 mtu 9000" in lines
    assert "sysctl reference-leaf1 net.ipv4.fib_multipath_hash_policy=3" in lines
    assert "ethtool reference-h1:leaf1 tx-udp-segmentation off tso off gro on" in lines
    assert "rule reference-leaf1 from 10.101.0.0/16 lookup 101" in lines
    assert (
        "route reference-leaf1 10.0.2.0/24 nexthop via 10.255.0.5 dev spine1 nexthop via 10.255.0.7 dev spine2 "
        "nexthop via 10.255.0.9 dev spine3 nexthop via 10.255.0.11 dev spine4"
    ) in lines
    assert any(line.startswith("relay reference carrying leaf1-spine1, ") for line in lines)
    assert not any("ipv6" in line and "disable" not in line for line in lines)
    kernel = [str(step) for step in plan(reference(), "kernel")]
    assert any(
        line.startswith("netem reference-leaf1:spine1 limit 10 delay 500us rate 250mbit seed ") for line in kernel
    )


def test_plan__ipv6_beside_ipv4() -> None:
    lines = [str(step) for step in plan(replace(reference(), ipv6=True), "relay")]
    assert not any("disable_ipv6" in line for line in lines)
    assert "quiet reference-leaf1:spine1 arp off multicast off" in lines
    assert "address reference-h1 fd53:5244:0:1::1/128 dev leaf1" in lines
    assert "address reference-leaf1 fd53:5244:255::4/127 dev spine1" in lines
    assert "neighbour reference-leaf1 fd53:5244:255::5 lladdr 02:53:52:00:02:0b dev spine1" in lines
    assert "rule reference-leaf1 from fd53:5244:101::/48 lookup 101" in lines
    assert "route reference-h1 default via fd53:5244:255::1 dev leaf1 src fd53:5244:0:1::1" in lines
    everywhere = "nexthop via fd53:5244:255::5 dev spine1 nexthop via fd53:5244:255::7 dev spine2 "
    assert any(line.startswith(f"route reference-leaf1 fd53:5244:0:2::/64 {everywhere}") for line in lines)
    forwarding = lines.index("sysctl reference-leaf1 net.ipv6.conf.all.forwarding=1")
    assert forwarding > max(index for index, line in enumerate(lines) if line.startswith("quiet reference-leaf1"))
    assert sum(line.endswith("forwarding=1") for line in lines) == 6, "hosts do not forward"


def test_plan__resilient_groups_come_before_their_routes() -> None:
    lines = [str(step) for step in plan(replace(reference(), ecmp="resilient"), "relay")]
    leaf1 = [
        line for line in lines if line.startswith(("nexthop reference-leaf1 ", "route reference-leaf1 10.0.2.0/24"))
    ]
    assert leaf1 == [
        "nexthop reference-leaf1 id 1 via 10.255.0.5 dev spine1",
        "nexthop reference-leaf1 id 2 via 10.255.0.7 dev spine2",
        "nexthop reference-leaf1 id 3 via 10.255.0.9 dev spine3",
        "nexthop reference-leaf1 id 4 via 10.255.0.11 dev spine4",
        "nexthop reference-leaf1 id 5 group 1/2/3/4 type resilient buckets 128 idle_timer 1",
        "route reference-leaf1 10.0.2.0/24 nhid 5",
        *(f"route reference-leaf1 10.0.2.0/24 via 10.255.0.{n} dev spine{s} table 10{s}" for s, n in SPINES),
    ]
    relay = next(index for index, line in enumerate(lines) if line.startswith("relay "))
    assert relay < lines.index(leaf1[0]), "a nexthop object needs a carrier"


ONE, TWO, THREE = (Hop(f"10.255.0.{number}", f"s{number}") for number in (1, 2, 3))


def test_nexthops__are_made_once_and_shared() -> None:
    nexthops = Nexthops("x-a")
    one, two = AddNexthop("x-a", 1, ONE), AddNexthop("x-a", 2, TWO)
    assert list(nexthops.missing((ONE, TWO))) == [one, two, AddNexthopGroup("x-a", 3, (one, two))]
    assert list(nexthops.missing((ONE, TWO))) == []
    three = AddNexthop("x-a", 4, THREE)
    assert list(nexthops.missing((ONE, THREE))) == [three, AddNexthopGroup("x-a", 5, (one, three))]
    assert (nexthops.group((ONE, TWO)), nexthops.group((ONE, THREE))) == (3, 5)
