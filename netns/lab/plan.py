"""From a topology to the operations that build it. Pure: `srd-lab plan` needs no privileges, its tests no kernel.

The order: namespaces; the sysctls of each; links; then node by node addresses and neighbours; the shapes; last the
routes, because a nexthop object needs a carrier, and a TAP gets its carrier from the relay. docs/fabric.md has the
facts behind the values.

What a host sends is never shaped on the host's interface: netem there draws once per super-packet of up to 64 KiB, and
TCP sees its losses as local drops. So impairments are placed after a switch, which forwards packets: between switches
and on the link to a host. The virtual backend has neither problem.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from netns.errors import TopologyError
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
    RelayLink,
    SetNetem,
    SetOffloads,
    SetQuiet,
    SetState,
    SetSysctl,
    StartRelay,
    SyncCarrier,
)
from netns.netem.shape import Shape, require_real
from netns.topology.addressing import Addressing, addressing, versions
from netns.topology.model import Link, Topology
from netns.topology.routing import next_hops, planes

Backend = Literal["kernel", "relay"]

TAP_QUEUE_PACKETS: Final = 10_000
MAX_TAP_MTU: Final = 65521  # drivers/net/tun.c: MAX_MTU 65535 less the Ethernet header

# For every node. Routes over a link without carrier are not used.
NODE_SYSCTLS: Final = (
    ("net.ipv4.conf.all.rp_filter", 0),
    ("net.ipv4.conf.default.rp_filter", 0),
    ("net.ipv4.conf.default.ignore_routes_with_linkdown", 1),
)

# Without IPv6, the fabric's interfaces have it disabled (loopback keeps it), because its own packets would consume
# draws of seeded shapes and change the counters of an idle link. With IPv6, other settings achieve the same: no
# link-local addresses, no duplicate address detection, no router solicitations, and `SetQuiet`. Addresses survive a
# lost link.
NO_IPV6_SYSCTL: Final = ("net.ipv6.conf.default.disable_ipv6", 1)
IPV6_NODE_SYSCTLS: Final = (
    ("net.ipv6.conf.default.addr_gen_mode", 1),
    ("net.ipv6.conf.default.accept_dad", 0),
    ("net.ipv6.conf.default.accept_ra", 0),
    ("net.ipv6.conf.default.keep_addr_on_down", 1),
    ("net.ipv6.conf.default.ignore_routes_with_linkdown", 1),
)

# Routers: forward; choose among equal paths by addresses, protocol and ports only (policy 3, fields 0x37: policy 1
# would use the sender's own hash of a connected socket); reply to every expired TTL, which `verify` uses.
ROUTER_SYSCTLS: Final = (
    ("net.ipv4.ip_forward", 1),
    ("net.ipv4.fib_multipath_hash_policy", 3),
    ("net.ipv4.fib_multipath_hash_fields", 0x37),
    ("net.ipv4.icmp_ratemask", 0),
)
IPV6_ROUTER_SYSCTLS: Final = (
    ("net.ipv6.fib_multipath_hash_policy", 3),
    ("net.ipv6.fib_multipath_hash_fields", 0x37),
    ("net.ipv6.icmp.ratelimit", 0),
)
# Last, after the interfaces are quiet: otherwise an interface would join the all-routers group, and report it.
IPV6_FORWARDING_SYSCTL: Final = ("net.ipv6.conf.all.forwarding", 1)
# Linux 6.11, for both versions of IP; before that, all routers hash alike.
HASH_SEED_SYSCTL: Final = "net.ipv4.fib_multipath_hash_seed"

# A host sends packets, not super-packets, to the fabric, and joins them again on arrival (GRO). This also needs TSO off
# at its switch's end: otherwise the kernel assumes that packets from there are already joined, and bypasses GRO
# (drivers/net/veth.c, veth_skb_is_eligible_for_gro).
HOST_OFFLOADS: Final = (("tx-udp-segmentation", "off"), ("tso", "off"), ("gro", "on"))
SWITCH_OFFLOADS: Final = (("tso", "off"),)


def plan(topology: Topology, backend: Backend) -> tuple[Operation, ...]:
    """Return the operations that build `topology`, with its shaped links in `backend`.

    Raises TopologyError, or ShapeError for a shape, if that is impossible.
    """
    if backend == "relay" and topology.mtu > MAX_TAP_MTU:
        raise TopologyError(f"mtu: {topology.mtu} is more than a TAP device carries; use at most {MAX_TAP_MTU}")
    _check_shapes(topology)
    planner = _Planner(
        topology, tuple(addressing(topology, version=version) for version in versions(topology)), backend
    )
    return tuple(planner.steps())


def _check_shapes(topology: Topology) -> None:
    hosts = set(topology.hosts)
    for link in topology.links:
        for direction, sender, shape in (("ab", link.a, link.shape_ab), ("ba", link.b, link.shape_ba)):
            if shape is not None and sender in hosts:
                raise TopologyError(
                    f"link {link.name}: shape_{direction}: what a host sends is shaped in the virtual backend only; "
                    "shape the other direction, or a link between switches"
                )
            require_real(shape, at=f"link {link.name}: shape_{direction}")


def namespace(topology: Topology, node: str) -> str:
    """The name of a node's namespace."""
    return f"{topology.name}-{node}"


def derive_seed(seed: int, *, label: str) -> int:
    """Derive a 32-bit seed, never 0, for one purpose from a topology's seed; stable across versions of Python."""
    digest = hashlib.blake2b(f"{seed}:{label}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") or 1


def shape_seed(topology: Topology, link: Link, *, direction: Literal["ab", "ba"]) -> int:
    """Return the seed of one direction's draws: the shape's own, else one derived from the topology's."""
    shape = link.shape_ab if direction == "ab" else link.shape_ba
    if shape is not None and shape.seed is not None:
        return shape.seed
    return derive_seed(topology.seed, label=f"{link.name}/{direction}")


@dataclass(frozen=True, slots=True)
class _Planner:
    """Builds the plan of one topology."""

    topology: Topology
    addressings: tuple[Addressing, ...]
    """One for each version of IP; hardware addresses are the same in all."""

    backend: Backend

    def steps(self) -> Iterator[Operation]:
        for node in self.topology.nodes:
            yield AddNamespace(self.netns(node))
        for node in self.topology.nodes:
            yield from self.sysctls(node)
        for link in self.topology.links:
            yield from self.link(link)
        for node in self.topology.nodes:
            yield from self.interfaces(node)
        for switch in self.topology.switches:
            if self.topology.ipv6:
                yield SetSysctl(self.netns(switch.name), *IPV6_FORWARDING_SYSCTL)
        yield from self.shapes()
        for host in self.topology.hosts:
            yield from self.carriers(host)
            for addresses in self.addressings:
                yield self.host_route(host, addresses)
        for switch in self.topology.switches:
            yield from self.carriers(switch.name)
            nexthops = Nexthops(self.netns(switch.name))
            for addresses in self.addressings:
                yield from self.switch_routes(switch.name, addresses, nexthops)

    def netns(self, node: str) -> str:
        return namespace(self.topology, node)

    def sysctls(self, node: str) -> Iterator[Operation]:
        netns = self.netns(node)
        router, ipv6 = node not in self.topology.hosts, self.topology.ipv6
        settings = NODE_SYSCTLS + (ROUTER_SYSCTLS if router else ())
        if ipv6:
            settings += IPV6_NODE_SYSCTLS + (IPV6_ROUTER_SYSCTLS if router else ())
        for key, value in settings:
            yield SetSysctl(netns, key, value)
        if not ipv6:
            yield SetSysctl(netns, *NO_IPV6_SYSCTL, optional=True)
        if router:
            seed = derive_seed(self.topology.seed, label=f"{node}/ecmp")
            yield SetSysctl(netns, HASH_SEED_SYSCTL, seed, optional=True)

    def link(self, link: Link) -> Iterator[Operation]:
        a, b = self.netns(link.a), self.netns(link.b)
        hardware = self.addressings[0].hardware
        if self.backend == "relay" and link.shaped:
            yield AddTap(a, link.b, hardware[link.a, link.b], self.topology.mtu, TAP_QUEUE_PACKETS)
            yield AddTap(b, link.a, hardware[link.b, link.a], self.topology.mtu, TAP_QUEUE_PACKETS)
        else:
            ends = hardware[link.a, link.b], hardware[link.b, link.a]
            yield AddVeth(a, link.b, ends[0], b, link.a, ends[1], self.topology.mtu)

    def interfaces(self, node: str) -> Iterator[Operation]:
        netns = self.netns(node)
        for link in self.topology.links_of[node]:
            neighbour = link.other(node)
            if self.topology.ipv6:
                yield SetQuiet(netns, neighbour)
            for addresses in self.addressings:
                length = addresses.host_bits
                yield AddAddress(netns, neighbour, f"{addresses.transfer[node, neighbour]}/{length - 1}")
                if node in self.topology.hosts:
                    for address in addresses.all_of(node):
                        yield AddAddress(netns, neighbour, f"{address}/{length}")
            if node in self.topology.hosts:
                yield SetOffloads(netns, neighbour, HOST_OFFLOADS)
            elif neighbour in self.topology.hosts:
                yield SetOffloads(netns, neighbour, SWITCH_OFFLOADS)
            yield SetState(netns, neighbour, "up")
            for addresses in self.addressings:
                gateway = addresses.transfer[neighbour, node]
                yield AddNeighbour(netns, neighbour, gateway, addresses.hardware[neighbour, node])

    def carriers(self, node: str) -> Iterator[Operation]:
        """Yield what comes before routes, once both ends of all links are up and the relay runs."""
        for link in self.topology.links_of[node]:
            yield SyncCarrier(self.netns(node), link.other(node))

    def host_route(self, host: str, addresses: Addressing) -> Operation:
        hops = _hops(host, (self.topology.switch_of(host),), addresses)
        return AddRoute(self.netns(host), "default", hops, source=addresses.main[host])

    def switch_routes(self, node: str, addresses: Addressing, nexthops: Nexthops) -> Iterator[Operation]:
        """Yield routes to own hosts by address, to other leaves by prefix: on all shortest paths and in each plane."""
        netns = self.netns(node)
        for host in self.topology.hosts:
            if self.topology.switch_of(host) == node:
                for address in addresses.all_of(host):
                    yield AddRoute(netns, f"{address}/{addresses.host_bits}", _hops(node, (host,), addresses))
        ruled: set[str] = set()
        for leaf in addresses.leaf_number:
            if leaf == node:
                continue
            everywhere = next_hops(self.topology, towards=leaf)[node]
            yield from self.route(addresses.main_prefix(leaf), _hops(node, everywhere, addresses), nexthops)
            for spine, avoiding in planes(self.topology).items():
                pinned = next_hops(self.topology, towards=leaf, avoiding=avoiding).get(node)
                if pinned is None:
                    continue  # a spine of another plane
                hops = _hops(node, pinned, addresses)
                yield from self.route(addresses.pinned_prefix(leaf, spine=spine), hops, nexthops)
                if pinned != everywhere:
                    table = addresses.plane_number[spine]
                    yield from self.route(addresses.main_prefix(leaf), hops, nexthops, table=table)
                    if spine not in ruled:
                        ruled.add(spine)
                        yield AddRule(netns, addresses.plane_prefix(spine), table)

    def route(
        self, destination: str, hops: tuple[Hop, ...], nexthops: Nexthops, *, table: int | None = None
    ) -> Iterator[Operation]:
        """Yield a router's route, after the nexthop objects that it needs."""
        if self.topology.ecmp == "resilient" and len(hops) > 1:
            yield from nexthops.missing(hops)
            yield AddRoute(nexthops.netns, destination, hops, table=table, group=nexthops.group(hops))
        else:
            yield AddRoute(nexthops.netns, destination, hops, table=table)

    def shapes(self) -> Iterator[Operation]:
        shaped = [link for link in self.topology.links if link.shaped]
        if self.backend == "relay":
            if shaped:
                yield StartRelay(self.topology.name, tuple(self.relay_link(link) for link in shaped))
            return
        for link in shaped:
            yield from self.netems(link)

    def netems(self, link: Link) -> Iterator[Operation]:
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


def _hops(node: str, neighbours: tuple[str, ...], addresses: Addressing) -> tuple[Hop, ...]:
    return tuple(Hop(addresses.transfer[neighbour, node], neighbour) for neighbour in neighbours)


@dataclass(slots=True)
class Nexthops:
    """Allocates the nexthop objects of one router, for resilient groups; the first route that needs one creates it.

    A route with its own list of next hops chooses by hash-threshold (RFC 2992): each next hop has a share of the range
    of hashes, and when one is removed all boundaries move. A resilient group (Linux 5.13; `type resilient` of
    ip-nexthop(8)) has buckets between hash and next hop instead, and only those of the removed next hop are reassigned.

    Numbers are local to the router, from 1 in order of use. Routes over the same next hops share a group.
    """

    netns: str
    _members: dict[Hop, AddNexthop] = field(default_factory=dict)
    _groups: dict[tuple[Hop, ...], AddNexthopGroup] = field(default_factory=dict)

    def missing(self, hops: tuple[Hop, ...]) -> Iterator[Operation]:
        """Yield the operations that must precede a route over `hops`."""
        for hop in hops:
            if hop not in self._members:
                self._members[hop] = AddNexthop(self.netns, self._next(), hop)
                yield self._members[hop]
        if hops not in self._groups:
            members = tuple(self._members[hop] for hop in hops)
            self._groups[hops] = AddNexthopGroup(self.netns, self._next(), members)
            yield self._groups[hops]

    def group(self, hops: tuple[Hop, ...]) -> int:
        """Return the number of the group of `hops`, which `missing` has created."""
        return self._groups[hops].number

    def _next(self) -> int:
        return len(self._members) + len(self._groups) + 1
