"""The topologies that cases share."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from netns.netem.shape import Shape, limit_for
from netns.topology.model import ETHERNET_HEADER_BYTES, Link, Switch, Topology, fully_meshed
from srd.sim.experiments.fabric import with_host_ports

MTU: Final = 9000
PACKET_BYTES: Final = MTU + ETHERNET_HEADER_BYTES
_UNSHAPED: Final = Shape()


def buffered(*, rate_bps: int, delay_us: float, buffer_bytes: float) -> Shape:
    """Return a switch port that buffers `buffer_bytes` of full packets, besides those in the delay line."""
    limit = limit_for(rate_bps=rate_bps, delay_us=delay_us, buffer_bytes=round(buffer_bytes), packet_bytes=PACKET_BYTES)
    return Shape(delay_us=delay_us, rate_bps=rate_bps, limit_packets=limit)


def clos(
    hosts_per_leaf: tuple[int, ...], *, spines: int, host_port: Shape, spine_link: Shape, name: str, seed: int
) -> Topology:
    """Return a leaf-spine fabric; hosts' links are shaped both ways: down by `host_port`, up with a deep queue."""
    made = fully_meshed(
        leaves=len(hosts_per_leaf),
        spines=spines,
        hosts_per_leaf=hosts_per_leaf,
        mtu=MTU,
        shape=spine_link,
        name=name,
        seed=seed,
    )
    links = (link if link.shaped else replace(link, shape_ba=host_port) for link in made.links)
    return with_host_ports(replace(made, links=tuple(links)))


def one_switch(*, name: str, mtu: int, to_h1: Shape | None = None, to_h2: Shape = _UNSHAPED, seed: int = 1) -> Topology:
    """Return h1 - leaf1 - h2, with what the switch's ports to the hosts are shaped by; None: not, nor ever."""
    links = (Link("leaf1", "h1", to_h1), Link("leaf1", "h2", to_h2))
    return Topology(name=name, hosts=("h1", "h2"), switches=(Switch("leaf1", "leaf"),), links=links, mtu=mtu, seed=seed)


def wire_bytes(payload_bytes: int, *, packet_payload_bytes: int, overhead_bytes: int) -> int:
    """Return a message's size on the wire: payload, and the headers of its packets."""
    packets = max(-(-payload_bytes // packet_payload_bytes), 1)
    return payload_bytes + packets * overhead_bytes
