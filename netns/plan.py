"""From a topology to the steps that build it: pure, so that `srd-lab plan` needs no privileges and tests no kernel.

The order: namespaces; each one's sysctls; links; then node by node addresses, neighbours and routes; last the shapes,
so that nothing is delayed or lost while the fabric comes up. The facts behind the values are in docs/fabric.md.

What a host sends is never shaped on its own link: netem on a host's interface draws once per super-packet of up to 64
KiB and shows TCP its losses as local drops. So impairments lie behind a switch, which has packets: between switches
and on the way down to a host. The virtual fabric has neither trouble.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from netns.addressing import Addressing, addressing
from netns.errors import TopologyError
from netns.routing import next_hops, planes
from netns.shape import Shape, require_real
from netns.steps import (
    AddAddress,
    AddNamespace,
    AddNeighbour,
    AddRoute,
    AddRule,
    AddTap,
    AddVeth,
    Hop,
    RelayLink,
    SetNetem,
    SetOffloads,
    SetSysctl,
    SetUp,
    StartRelay,
    Step,
)
from netns.topology import Link, Topology

Fabric = Literal["kernel", "relay"]

TAP_QUEUE_PACKETS: Final = 10_000
MAX_TAP_MTU: Final = 65521  # drivers/net/tun.c: MAX_MTU 65535 less the Ethernet header

# Every node: IPv6 stays off the fabric's interfaces (loopback keeps it), because its own chatter would take draws from
# seeded shapes and move counters of an idle link.
NODE_SYSCTLS: Final = (
    ("net.ipv4.conf.all.rp_filter", 0),
    ("net.ipv4.conf.default.rp_filter", 0),
)
IPV6_SYSCTL: Final = ("net.ipv6.conf.default.disable_ipv6", 1)

# Routers: forward; choose among equal paths by addresses, protocol and ports only (policy 3, fields 0x37: policy 1
# would use the sender's own hash of a connected socket); answer every expired TTL, by which `verify` sees the path.
ROUTER_SYSCTLS: Final = (
    ("net.ipv4.ip_forward", 1),
    ("net.ipv4.fib_multipath_hash_policy", 3),
    ("net.ipv4.fib_multipath_hash_fields", 0x37),
    ("net.ipv4.icmp_ratemask", 0),
)
HASH_SEED_SYSCTL: Final = "net.ipv4.fib_multipath_hash_seed"  # Linux 6.11; before, all routers hash alike

# A host hands packets, not super-packets, to the fabric, and joins them again on arrival (GRO). For that its switch's
# end needs TSO off as well: else the kernel takes what comes from there for joined already, and bypasses GRO
# (drivers/net/veth.c, veth_skb_is_eligible_for_gro).
HOST_OFFLOADS: Final = (("tx-udp-segmentation", "off"), ("tso", "off"), ("gro", "on"))
SWITCH_OFFLOADS: Final = (("tso", "off"),)


def plan(topology: Topology, fabric: Fabric) -> tuple[Step, ...]:
    """The steps that build `topology` with its shaped links in `fabric`.

    Raises TopologyError, or ShapeError for a shape, if they cannot.
    """
    if fabric == "relay" and topology.mtu > MAX_TAP_MTU:
        raise TopologyError(f"mtu: {topology.mtu} is more than a TAP device carries; use at most {MAX_TAP_MTU}")
    _check_shapes(topology)
    planner = _Planner(topology, addressing(topology), fabric)
    return tuple(planner.steps())


def _check_shapes(topology: Topology) -> None:
    hosts = set(topology.hosts)
    for link in topology.links:
        for direction, sender, shape in (("ab", link.a, link.shape_ab), ("ba", link.b, link.shape_ba)):
            if shape is not None and sender in hosts:
                raise TopologyError(
                    f"link {link.name}: shape_{direction}: what a host sends is shaped in the virtual fabric only; "
                    "shape the other direction, or a link between switches"
                )
            require_real(shape, at=f"link {link.name}: shape_{direction}")


def namespace(topology: Topology, node: str) -> str:
    """The name of a node's namespace."""
    return f"{topology.name}-{node}"


def derive_seed(seed: int, *, label: str) -> int:
    """A 32-bit seed, never 0, for one thing out of a topology's seed; stable across versions of Python."""
    digest = hashlib.blake2b(f"{seed}:{label}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") or 1


def shape_seed(topology: Topology, link: Link, *, direction: Literal["ab", "ba"]) -> int:
    """The seed of one direction's draws: the shape's own, else one derived from the topology's."""
    shape = link.shape_ab if direction == "ab" else link.shape_ba
    if shape is not None and shape.seed is not None:
        return shape.seed
    return derive_seed(topology.seed, label=f"{link.name}/{direction}")


@dataclass(frozen=True, slots=True)
class _Planner:
    """One topology's plan in the making."""

    topology: Topology
    addresses: Addressing
    fabric: Fabric

    def steps(self) -> Iterator[Step]:
        for node in self.topology.nodes:
            yield AddNamespace(self.netns(node))
        for node in self.topology.nodes:
            yield from self.sysctls(node)
        for link in self.topology.links:
            yield from self.link(link)
        for node in self.topology.nodes:
            yield from self.interfaces(node)
        for host in self.topology.hosts:
            yield from self.host_routes(host)
        for switch in self.topology.switches:
            yield from self.switch_routes(switch.name)
        yield from self.shapes()

    def netns(self, node: str) -> str:
        return namespace(self.topology, node)

    def sysctls(self, node: str) -> Iterator[Step]:
        netns = self.netns(node)
        settings = NODE_SYSCTLS if node in self.topology.hosts else NODE_SYSCTLS + ROUTER_SYSCTLS
        for key, value in settings:
            yield SetSysctl(netns, key, value)
        yield SetSysctl(netns, *IPV6_SYSCTL, optional=True)
        if node not in self.topology.hosts:
            seed = derive_seed(self.topology.seed, label=f"{node}/ecmp")
            yield SetSysctl(netns, HASH_SEED_SYSCTL, seed, optional=True)

    def link(self, link: Link) -> Iterator[Step]:
        a, b = self.netns(link.a), self.netns(link.b)
        hardware_a = self.addresses.hardware[link.a, link.b]
        hardware_b = self.addresses.hardware[link.b, link.a]
        if self.fabric == "relay" and link.shaped:
            yield AddTap(a, link.b, hardware_a, self.topology.mtu, TAP_QUEUE_PACKETS)
            yield AddTap(b, link.a, hardware_b, self.topology.mtu, TAP_QUEUE_PACKETS)
        else:
            yield AddVeth(a, link.b, hardware_a, b, link.a, hardware_b, self.topology.mtu)

    def interfaces(self, node: str) -> Iterator[Step]:
        netns = self.netns(node)
        for link in self.topology.links_of[node]:
            neighbour = link.other(node)
            yield AddAddress(netns, neighbour, f"{self.addresses.transfer[node, neighbour]}/31")
            if node in self.topology.hosts:
                for address in self.addresses.all_of(node):
                    yield AddAddress(netns, neighbour, f"{address}/32")
                yield SetOffloads(netns, neighbour, HOST_OFFLOADS)
            elif neighbour in self.topology.hosts:
                yield SetOffloads(netns, neighbour, SWITCH_OFFLOADS)
            yield SetUp(netns, neighbour)
            yield AddNeighbour(
                netns,
                neighbour,
                self.addresses.transfer[neighbour, node],
                self.addresses.hardware[neighbour, node],
            )

    def host_routes(self, host: str) -> Iterator[Step]:
        hops = self.hops(host, (self.topology.switch_of(host),))
        yield AddRoute(self.netns(host), "default", hops, source=self.addresses.main[host])

    def switch_routes(self, node: str) -> Iterator[Step]:
        """To hosts of its own by address; to every other leaf by prefix, over all shortest paths and in each plane."""
        netns = self.netns(node)
        for host in self.topology.hosts:
            if self.topology.switch_of(host) == node:
                for address in self.addresses.all_of(host):
                    yield AddRoute(netns, f"{address}/32", self.hops(node, (host,)))
        ruled: set[str] = set()
        for leaf in self.addresses.leaf_number:
            if leaf == node:
                continue
            everywhere = next_hops(self.topology, towards=leaf)[node]
            yield AddRoute(netns, self.addresses.main_prefix(leaf), self.hops(node, everywhere))
            for spine, avoiding in planes(self.topology).items():
                pinned = next_hops(self.topology, towards=leaf, avoiding=avoiding).get(node)
                if pinned is None:
                    continue  # another plane's spine
                hops = self.hops(node, pinned)
                yield AddRoute(netns, self.addresses.pinned_prefix(leaf, spine=spine), hops)
                if pinned != everywhere:
                    table = self.addresses.plane_number[spine]
                    yield AddRoute(netns, self.addresses.main_prefix(leaf), hops, table=table)
                    if spine not in ruled:
                        ruled.add(spine)
                        yield AddRule(netns, self.addresses.plane_prefix(spine), table)

    def hops(self, node: str, neighbours: tuple[str, ...]) -> tuple[Hop, ...]:
        return tuple(Hop(self.addresses.transfer[neighbour, node], neighbour) for neighbour in neighbours)

    def shapes(self) -> Iterator[Step]:
        shaped = [link for link in self.topology.links if link.shaped]
        if self.fabric == "relay":
            if shaped:
                yield StartRelay(self.topology.name, tuple(self.relay_link(link) for link in shaped))
            return
        for link in shaped:
            yield from self.netems(link)

    def netems(self, link: Link) -> Iterator[Step]:
        if link.shape_ab is not None:
            seed = shape_seed(self.topology, link, direction="ab")
            yield SetNetem(self.netns(link.a), link.b, link.shape_ab, seed)
        if link.shape_ba is not None:
            seed = shape_seed(self.topology, link, direction="ba")
            yield SetNetem(self.netns(link.b), link.a, link.shape_ba, seed)

    def relay_link(self, link: Link) -> RelayLink:
        return RelayLink(
            name=link.name,
            netns_a=self.netns(link.a),
            ifname_a=link.b,
            netns_b=self.netns(link.b),
            ifname_b=link.a,
            shape_ab=link.shape_ab or Shape(),
            shape_ba=link.shape_ba or Shape(),
            seed_ab=shape_seed(self.topology, link, direction="ab"),
            seed_ba=shape_seed(self.topology, link, direction="ba"),
        )
