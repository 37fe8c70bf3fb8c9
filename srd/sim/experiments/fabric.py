"""The network of an experiment: its file, what hosts' own ports do, and how fast a flow could be in it.

Topology files shape the direction to a host only, since in a lab what a host sends is not shaped. In virtual time hosts
have ports: what a host sends has the rate and delay of its link, and a deep queue of its own.

The *ideal* completion time of a flow: its payload in full packets with Ethernet, IP and UDP headers, at the rate of the
narrowest of four cuts (the two hosts' links, all links from the first leaf, all links to the last one), after the
shortest delay between the two. It is a bound from below for any transport; *slowdown* is a time over the ideal.
What no transport with SRD's headers can do faster is a little more: its headers, and that each switch takes a packet in
whole before it sends it on.
"""

from __future__ import annotations

from dataclasses import replace
from heapq import heappop, heappush
from pathlib import Path
from typing import Final

from netns.base.files import file_or_example
from netns.examples import file_named
from netns.netem.shape import Shape
from netns.topology.file import read_topology
from netns.topology.model import ETHERNET_HEADER_BYTES, Link, Topology
from srd.proto.config import ProtocolConfig
from srd.proto.wire.data import HEADER_BYTES
from srd.sim.experiments.htsim import HOST_QUEUE_PACKETS, read_topo
from srd.sim.host import IP_UDP_BYTES, WIRE_OVERHEAD_BYTES
from srd.sim.presets import MICROSECOND_FABRIC

FABRICS: Final = Path(__file__).parent / "fabrics"
MICROSECONDS_BELOW_US: Final = 1000.0
"""Round trips of an empty fabric below which protocol settings are those for microseconds (`srd.sim.presets`)."""
MICROSECONDS_FROM_BPS: Final = 10_000_000_000
"""Least rate of hosts for these settings. Their delay target is 8 us where the round trip is 40 us, and a full packet
takes 7 us at this rate: on a slower link the target would be less than one packet."""


def named_file(name: str) -> Path:
    """Return a topology's file: the one of that name, or one of the built-in ones (srd/sim/experiments/fabrics)."""
    found = file_or_example(name, examples=FABRICS)
    return file_named(name) if found == Path(name) else found


def read_fabric(name: str) -> Topology:
    """Return a topology by the name of its file, with ports of hosts. Raises LabError or ExperimentError."""
    path = named_file(name)
    return with_host_ports(read_topo(path, seed=1) if path.suffix == ".topo" else read_topology(path))


def with_host_ports(topology: Topology) -> Topology:
    """Return a topology in which the direction from a host is shaped as that to it, if it has no shape of its own."""
    hosts = frozenset(topology.hosts)
    return replace(topology, links=tuple(_with_port(link, hosts) for link in topology.links))


def _with_port(link: Link, hosts: frozenset[str]) -> Link:
    if link.a in hosts and link.shape_ab is None and link.shape_ba is not None:
        return replace(link, shape_ab=_port(link.shape_ba))
    if link.b in hosts and link.shape_ba is None and link.shape_ab is not None:
        return replace(link, shape_ba=_port(link.shape_ab))
    return link


def _port(down: Shape) -> Shape:
    return Shape(delay_us=down.delay_us, rate_bps=down.rate_bps, limit_packets=HOST_QUEUE_PACKETS)


def packet_bytes(topology: Topology) -> int:
    """Return what a full packet is on the wire."""
    return topology.mtu + ETHERNET_HEADER_BYTES


def payload_bytes(topology: Topology) -> int:
    """Return SRD's payload of a full packet."""
    return packet_bytes(topology) - WIRE_OVERHEAD_BYTES - HEADER_BYTES


def message_bytes(topology: Topology, *, size_bytes: int) -> tuple[int, int]:
    """Return what SRD's packets of a message are on the wire, all and the last one."""
    each, headers_bytes = payload_bytes(topology), WIRE_OVERHEAD_BYTES + HEADER_BYTES
    packets = max(-(-size_bytes // each), 1)
    return size_bytes + packets * headers_bytes, size_bytes - (packets - 1) * each + headers_bytes


class Bounds:
    """How fast flows could be in an empty fabric."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._payload_bytes = topology.mtu - IP_UDP_BYTES
        self._header_bytes = IP_UDP_BYTES + ETHERNET_HEADER_BYTES
        self._hosts = frozenset(topology.hosts)
        self._delays: dict[tuple[str, int], dict[str, float]] = {}
        self._rates: dict[tuple[str, bool], float] = {}

    def ideal_us(self, source: str, destination: str, *, size_bytes: int) -> float:
        """Return the time that a flow takes at least."""
        rate_bps = self._rate_bps(source, destination)
        return self.delay_us(source, destination) + self._wire_us(size_bytes, rate_bps)

    def message_us(self, source: str, destination: str, *, size_bytes: int) -> float:
        """Return the time that a message of SRD takes at least: all but its last packet, which is then on its way."""
        wire_bytes, last_bytes = message_bytes(self._topology, size_bytes=size_bytes)
        rate_bps = self._rate_bps(source, destination)
        before_us = 8e6 * (wire_bytes - last_bytes) / rate_bps if rate_bps else 0.0
        return before_us + self.delay_us(source, destination, length_bytes=last_bytes)

    def host_us(self, host: str, *, outwards: bool, size_bytes: int) -> float:
        """Return the time for which a flow occupies a host's link, out of it or into it."""
        link = self._topology.links_of[host][0]
        return self._wire_us(size_bytes, _shape(link, host if outwards else link.other(host)).rate_bps)

    def _wire_us(self, size_bytes: int, rate_bps: float) -> float:
        packets = -(-size_bytes // self._payload_bytes)
        return 8e6 * (size_bytes + packets * self._header_bytes) / rate_bps if rate_bps else 0.0

    def delay_us(self, source: str, destination: str, *, length_bytes: int = 0) -> float:
        """Return the shortest delay from one host to another, of a packet of so many bytes."""
        up, down = self._topology.links_of[source][0], self._topology.links_of[destination][0]
        leaves = (up.other(source), down.other(destination))
        ends = (_shape(up, source), _shape(down, leaves[1]))
        return sum(_delay_us(shape, length_bytes) for shape in ends) + self._from(leaves[0], length_bytes)[leaves[1]]

    def longest_rtt_us(self) -> float:
        """Return the longest round trip from the first host."""
        first, *others = self._topology.hosts
        leaf = self._topology.switch_of(first)
        there_us, back_us = self._from(leaf, 0), self._shortest(leaf, 0, back=True)
        leaves = {other: self._topology.switch_of(other) for other in others}
        rtts_us = (self._ends_us(other) + there_us[leaf] + back_us[leaf] for other, leaf in leaves.items())
        return self._ends_us(first) + max(rtts_us) if others else 0.0

    def _ends_us(self, host: str) -> float:
        """Return the delays of a host's link, out of it and into it."""
        link = self._topology.links_of[host][0]
        return _delay_us(_shape(link, host), 0) + _delay_us(_shape(link, link.other(host)), 0)

    def _from(self, leaf: str, length_bytes: int) -> dict[str, float]:
        """Return the shortest delays from one switch to all, in us."""
        found = self._delays.get((leaf, length_bytes))
        if found is None:
            found = self._delays[leaf, length_bytes] = self._shortest(leaf, length_bytes, back=False)
        return found

    def _shortest(self, leaf: str, length_bytes: int, *, back: bool) -> dict[str, float]:
        """Return the same, or those from all to one switch (Dijkstra)."""
        found, heap = dict[str, float](), [(0.0, leaf)]
        while heap:
            delay_us, node = heappop(heap)
            if node in found:
                continue
            found[node] = delay_us
            for link in self._topology.links_of[node]:
                if (other := link.other(node)) not in found and other not in self._hosts:
                    shape = _shape(link, other if back else node)
                    heappush(heap, (delay_us + _delay_us(shape, length_bytes), other))
        return found

    def _rate_bps(self, source: str, destination: str) -> float:
        """Return the narrowest of the cuts; 0 if none has a rate."""
        up, down = self._topology.links_of[source][0], self._topology.links_of[destination][0]
        leaves = (up.other(source), down.other(destination))
        rates = [float(_shape(up, source).rate_bps), float(_shape(down, leaves[1]).rate_bps)]
        if leaves[0] != leaves[1]:
            rates += [self._leaf_bps(leaves[0], upwards=True), self._leaf_bps(leaves[1], upwards=False)]
        return min((rate for rate in rates if rate), default=0.0)

    def _leaf_bps(self, leaf: str, *, upwards: bool) -> float:
        """Return the rate of all of a leaf's links to other switches; 0 if one has no limit."""
        found = self._rates.get((leaf, upwards))
        if found is None:
            links = [link for link in self._topology.links_of[leaf] if link.other(leaf) not in self._hosts]
            rates = [_shape(link, leaf if upwards else link.other(leaf)).rate_bps for link in links]
            found = self._rates[leaf, upwards] = float(sum(rates)) if all(rates) else 0.0
        return found


def _shape(link: Link, source: str) -> Shape:
    """Return the shape of the direction from a node."""
    return (link.shape_ab if source == link.a else link.shape_ba) or _UNSHAPED


def _delay_us(shape: Shape, length_bytes: int) -> float:
    """Return the time that a packet is on a link, which begins when its first bit is sent."""
    return shape.delay_us + (8e6 * length_bytes / shape.rate_bps if shape.rate_bps else 0.0)


_UNSHAPED: Final = Shape()


def host_bps(topology: Topology) -> int:
    """Return the smallest rate with which a host sends; 0 if one has no limit."""
    rates = [_shape(topology.links_of[host][0], host).rate_bps for host in topology.hosts]
    return min(rates) if all(rates) else 0


def settings(topology: Topology) -> tuple[str, ProtocolConfig]:
    """Return the protocol settings that suit a topology's round trips and rates, and their name."""
    is_fast = host_bps(topology) >= MICROSECONDS_FROM_BPS or not host_bps(topology)
    if is_fast and Bounds(topology).longest_rtt_us() < MICROSECONDS_BELOW_US:
        return "microseconds", MICROSECOND_FABRIC
    return "defaults", ProtocolConfig()
