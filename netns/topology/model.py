"""The network as pure data: hosts, switches, links and the shape of each direction of a link.

Rules, checked when a `Topology` is created, so that every instance describes a fabric that can be built:

- A switch is a router. Its tier is `leaf`, `spine`, or `aggregation` if there is one between them. Flows are spread
  over the spines.
- A host has exactly one link, to a switch. (Whether the direction from a host may be shaped depends on the backend: the
  virtual backend supports it, kernel and relay do not, see netns/lab/plan.py.)
- There is at most one link between two nodes. Its name is "a-b", from its ends in the order given; users may name it
  "b-a", too. An interface has the name of the node at the other end, hence node names follow the kernel's rules for
  interface names.
- The network is connected.

A shape with a rate but no limit gets one by `with_buffer`, which follows later changes of delay and rate: netem's
default of 1000 packets would be a queue of 288 ms at 250 Mbit/s and MTU 9000.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, get_args

from netns.errors import TopologyError
from netns.netem.shape import NETEM_LIMIT, DerivedLimit, Shape

Tier = Literal["leaf", "aggregation", "spine"]
Ecmp = Literal["hash-threshold", "resilient"]

MIN_MTU: Final = 1280
MAX_MTU: Final = 65535
MAX_SEED: Final = 2**32 - 1
ETHERNET_HEADER_BYTES: Final = 14
MAX_LINKS: Final = 32768
"""The number of transfer addresses in the address plan (netns/topology/addressing.py). A host has a link, and a
connected network at most one node more than links, so this bounds the nodes, too. It is checked before anything is
built."""

MAX_NODE_NAME: Final = 15  # IFNAMSIZ - 1: interfaces have the names of nodes

_LAB_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")
_NODE_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_RESERVED: Final = frozenset({"lo", "all", "default"})  # an existing interface, and two keywords of sysctl


@dataclass(frozen=True, slots=True)
class Switch:
    """A router of the fabric."""

    name: str
    tier: Tier


@dataclass(frozen=True, slots=True)
class Link:
    """A cable between two nodes; `shape_ab` applies from `a` to `b`. None is an unshaped direction."""

    a: str
    b: str
    shape_ab: Shape | None = None
    shape_ba: Shape | None = None

    @property
    def name(self) -> str:
        """The name of the link in counters and commands."""
        return f"{self.a}-{self.b}"

    @property
    def reversed_name(self) -> str:
        """The other order of the ends, which commands and files may use, too."""
        return f"{self.b}-{self.a}"

    @property
    def shaped(self) -> bool:
        """Whether either direction is shaped."""
        return self.shape_ab is not None or self.shape_ba is not None

    def other(self, node: str) -> str:
        """Return the node at the other end."""
        return self.b if node == self.a else self.a


@dataclass(frozen=True, slots=True)
class Capture:
    """A link that is captured as long as the lab is up."""

    link: str
    file: str
    """The absolute path of the pcapng file."""

    overwrite: bool = False
    """Whether an earlier capture in that file may be replaced. Labs are built by root, and topologies may come from
    others: so a capture creates a new file or, with this option, replaces one, but only one that a capture wrote."""


@dataclass(frozen=True)  # not slotted: the cached views need a __dict__
class Topology:
    """A whole fabric. Raises TopologyError with key, value and remedy if it cannot be built."""

    name: str
    """The name of the lab, of its namespaces (NAME-NODE) and of its state; at most 32 characters."""

    hosts: tuple[str, ...]
    """Names of the hosts; their order determines their addresses."""

    switches: tuple[Switch, ...]
    """The routers; the order of the spines determines their planes of pinned addresses."""

    links: tuple[Link, ...]
    """The cables; their order determines their transfer addresses."""

    mtu: int = 9000
    """IP MTU of every link, in bytes."""

    seed: int = 1
    """The seed of everything random in the fabric: each router's ECMP hash, each link's draws."""

    captures: tuple[Capture, ...] = ()
    """Links to capture (labs only)."""

    ipv6: bool = False
    """Whether nodes have IPv6 addresses beside those of IPv4. Optional, because it makes building a lab slower."""

    ecmp: Ecmp = "hash-threshold"
    """How routers choose among equal paths. `hash-threshold` (RFC 2992) is Linux's default: when a next hop is removed,
    flows of the others move, too. With `resilient` only the flows of the lost next hop move."""

    def __post_init__(self) -> None:
        check_lab_name(self.name)
        check_range("mtu", self.mtu, low=MIN_MTU, high=MAX_MTU)
        check_range("seed", self.seed, low=0, high=MAX_SEED)
        check_size(links=len(self.links), nodes=len(self.hosts) + len(self.switches))
        if not self.hosts:
            raise TopologyError("hosts: none; a fabric needs at least one")
        _check_nodes(self.nodes)
        for switch in self.switches:
            if switch.tier not in get_args(Tier):
                raise TopologyError(
                    f"switches: {switch.name}: tier {switch.tier!r} is unknown; use leaf, aggregation or spine"
                )
        _check_links(self)
        _check_hosts(self)
        if self.ecmp not in get_args(Ecmp):
            raise TopologyError(f"ecmp: {self.ecmp!r} is unknown; use {' or '.join(get_args(Ecmp))}")
        for index, capture in enumerate(self.captures):
            self.link(capture.link)
            if any(capture.file == other.file for other in self.captures[:index]):
                raise TopologyError(f"captures[{index}].file: {capture.file} is given twice; each needs its own")

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """Every node's name: hosts, then switches."""
        return self.hosts + tuple(switch.name for switch in self.switches)

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """Names of the switches of tier leaf."""
        return tuple(switch.name for switch in self.switches if switch.tier == "leaf")

    @cached_property
    def spines(self) -> tuple[str, ...]:
        """Names of the switches of tier spine."""
        return tuple(switch.name for switch in self.switches if switch.tier == "spine")

    @cached_property
    def links_of(self) -> Mapping[str, tuple[Link, ...]]:
        """Each node's links, in the topology's order."""
        found: dict[str, list[Link]] = {node: [] for node in self.nodes}
        for link in self.links:
            found[link.a].append(link)
            found[link.b].append(link)
        return {node: tuple(links) for node, links in found.items()}

    def link(self, name: str) -> Link:
        """Return a link by its ends in either order; TopologyError with the shaped ones if there is none.

        The directions of the result are those of the topology: with a name other than the link's, `ab` is the
        direction to the first end that was named.
        """
        for link in self.links:
            if name in (link.name, link.reversed_name):
                return link
        shaped = ", ".join(link.name for link in self.links if link.shaped) or "none"
        raise TopologyError(f"link {name}: no such link in {self.name}; the shaped ones are: {shaped}")

    def links_at(self, name: str) -> tuple[Link, ...]:
        """Return the link `name`, with its ends in either order, or all links of a node; TopologyError if neither."""
        if name in self.nodes:
            return self.links_of[name]
        found = tuple(link for link in self.links if name in (link.name, link.reversed_name))
        if not found:
            raise TopologyError(f"{name}: neither a link nor a node of {self.name}; name one, as in leaf1-spine2")
        return found

    def canonical_name(self, name: str) -> str:
        """Return the one name of a node or link: a link's ends may be in either order. TopologyError if neither."""
        return name if name in self.nodes else self.links_at(name)[0].name

    def distances(self, *starts: str, avoiding: Collection[str] = ()) -> dict[str, int]:
        """Return the number of links to the nearest start, for nodes that reach one without crossing `avoiding`."""
        distance = dict.fromkeys(starts, 0)
        queue = deque(starts)
        while queue:
            node = queue.popleft()
            for link in self.links_of[node]:
                other = link.other(node)
                if other not in distance and other not in avoiding:
                    distance[other] = distance[node] + 1
                    queue.append(other)
        return distance

    def switch_of(self, host: str) -> str:
        """Return the switch of `host`; TopologyError if there is no such host."""
        if host not in self.hosts:
            raise TopologyError(f"host {host}: no such host in {self.name}; the hosts are: {', '.join(self.hosts)}")
        return self.links_of[host][0].other(host)


def leaf_spine(
    *,
    leaves: int = 2,
    spines: int = 4,
    hosts_per_leaf: int = 1,
    mtu: int = 9000,
    shape: Shape | None = None,
    name: str = "leaf-spine",
    seed: int = 1,
) -> Topology:
    """Link every leaf to every spine with `shape` in both directions; hosts h1, h2 ... leaf by leaf.

    A shape with netem's default limit gets the limit of `with_buffer`. Raises TopologyError.
    """
    if shape is not None and shape.limit_packets == NETEM_LIMIT:
        shape = with_buffer(shape, mtu=mtu)
    return fully_meshed(
        leaves=leaves, spines=spines, hosts_per_leaf=hosts_per_leaf, mtu=mtu, shape=shape, name=name, seed=seed
    )


def fully_meshed(
    *,
    leaves: int,
    spines: int,
    hosts_per_leaf: int | list[int] | tuple[int, ...],
    mtu: int,
    shape: Shape | None,
    name: str,
    seed: int,
) -> Topology:
    """Build `leaf_spine` with an unchanged shape, and as many hosts on each leaf, or a number for each.

    Raises TopologyError.
    """
    check_range("leaves", leaves, low=1, high=254)
    check_range("spines", spines, low=1, high=254)
    counts = hosts_of_leaves(hosts_per_leaf, leaves=leaves, least=1)
    check_size(links=sum(counts) + leaves * spines)
    leaf_names = [f"leaf{index + 1}" for index in range(leaves)]
    spine_names = [f"spine{index + 1}" for index in range(spines)]
    homes = [leaf for leaf, count in zip(leaf_names, counts, strict=True) for _ in range(count)]
    hosts = tuple(f"h{index + 1}" for index in range(len(homes)))
    switches = [Switch(leaf, "leaf") for leaf in leaf_names] + [Switch(spine, "spine") for spine in spine_names]
    links = [Link(host, leaf) for host, leaf in zip(hosts, homes, strict=True)]
    links += [Link(leaf, spine, shape, shape) for leaf in leaf_names for spine in spine_names]
    return Topology(name=name, mtu=mtu, seed=seed, hosts=hosts, switches=tuple(switches), links=tuple(links))


def hosts_of_leaves(hosts_per_leaf: int | list[int] | tuple[int, ...], *, leaves: int, least: int) -> Sequence[int]:
    """Return the hosts of each leaf: one number for all of them, or one for each, at least so many. TopologyError."""
    if not isinstance(hosts_per_leaf, list | tuple):
        check_range("hosts_per_leaf", hosts_per_leaf, low=1, high=254)
        return [hosts_per_leaf] * leaves
    if len(hosts_per_leaf) != leaves:
        raise TopologyError(
            f"hosts_per_leaf: {len(hosts_per_leaf)} numbers for {leaves} leaves; give one for each, or one for all"
        )
    for index, count in enumerate(hosts_per_leaf):
        check_range(f"hosts_per_leaf[{index}]", count, low=least, high=254)
    return hosts_per_leaf


def reference(*, name: str = "reference") -> Topology:
    """The reference fabric, for which results are quoted.

    2 leaves, 4 spines, h1 on leaf1, h2 on leaf2; 250 Mbit/s and 0.5 ms each way on every leaf-spine link, a buffer of
    one BDP; MTU 9000.
    """
    return leaf_spine(name=name, leaves=2, spines=4, hosts_per_leaf=1, shape=Shape(delay_us=500, rate_bps=250_000_000))


def with_buffer(shape: Shape, *, mtu: int) -> Shape:
    """Return `shape` with a limit of one bandwidth-delay product of its path, which follows changes of delay and rate.

    The path is leaf-spine-leaf, two links like this one: RTT = 2 x 2 x delay, BDP = rate x RTT, counted in full
    packets because netem's limit counts packets, those in the delay line included. (250 Mbit/s and 0.5 ms at MTU
    9000: 2 packets in flight, 7 waiting, 1 being sent.) Without a rate it is netem's own.
    """
    return shape.with_fields({"derived_limit": DerivedLimit(packet_bytes=mtu + ETHERNET_HEADER_BYTES)})


def check_lab_name(name: str) -> None:
    """Raise TopologyError unless `name` can name a lab, and so a directory and namespaces."""
    if not _LAB_NAME.fullmatch(name):
        raise TopologyError(
            f"name: {name!r} cannot name a lab; use letters, digits, '_', '.', '-', at most 32, first a letter or digit"
        )


def check_size(*, links: int, nodes: int = 0) -> None:
    """Raise TopologyError if no topology with so many links and nodes can be built."""
    if links > MAX_LINKS or nodes > MAX_LINKS + 1:
        count = f"{links} links" if links > MAX_LINKS else f"{nodes} hosts and switches"
        raise TopologyError(f"{count}; a topology has at most {MAX_LINKS} links, and a node more; make it smaller")


def check_range(key: str, value: object, *, low: int, high: int) -> None:
    """Raise TopologyError unless `value` is an integer in low..high."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise TopologyError(f"{key}: {value!r} is not an integer between {low} and {high}")


def _check_nodes(nodes: Iterable[str]) -> None:
    seen: set[str] = set()
    for node in nodes:
        if not _NODE_NAME.fullmatch(node) or node in _RESERVED:
            raise TopologyError(
                f"node {node!r}: not a name for interfaces; use letters, digits and '_', first a letter "
                "(not lo, all, default)"
            )
        if len(node) > MAX_NODE_NAME:
            raise TopologyError(
                f"node {node}: {len(node)} characters; an interface is named after it, so at most {MAX_NODE_NAME}"
            )
        if node in seen:
            raise TopologyError(f"node {node}: named twice; every host and switch needs its own name")
        seen.add(node)


def _check_links(topology: Topology) -> None:
    nodes, hosts = set(topology.nodes), set(topology.hosts)
    seen: set[frozenset[str]] = set()
    for link in topology.links:
        for end in (link.a, link.b):
            if end not in nodes:
                raise TopologyError(f"link {link.name}: {end} is neither a host nor a switch of this topology")
        if link.a == link.b:
            raise TopologyError(f"link {link.name}: joins {link.a} to itself; name two nodes")
        if frozenset((link.a, link.b)) in seen:
            raise TopologyError(f"link {link.name}: joins nodes that are joined already; one link for each pair")
        seen.add(frozenset((link.a, link.b)))
        if {link.a, link.b} <= hosts:
            raise TopologyError(f"link {link.name}: joins two hosts; put a switch between them")


def _check_hosts(topology: Topology) -> None:
    for host in topology.hosts:
        count = len(topology.links_of[host])
        if count != 1:
            raise TopologyError(f"host {host}: has {count} links; it needs exactly one, to a switch")
    first = topology.hosts[0]
    reached = topology.distances(first)
    for node in topology.nodes:
        if node not in reached:
            raise TopologyError(f"node {node}: no path to {first}; add links between their switches")
