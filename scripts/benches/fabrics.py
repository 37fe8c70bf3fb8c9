"""The topologies that cases share."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from netns.netem.shape import Shape, limit_for
from netns.topology.model import ETHERNET_HEADER_BYTES, Link, Switch, Topology

HOST_QUEUE_PACKETS: Final = 10_000
"""A host's queue to the fabric: deep, so that traffic beyond the rate of its port is queued and not lost."""
MTU: Final = 9000
PACKET_BYTES: Final = MTU + ETHERNET_HEADER_BYTES


def buffered(*, rate_bps: int, delay_us: float, buffer_bytes: float) -> Shape:
    """Return a switch port that buffers `buffer_bytes` of full packets, besides those in the delay line."""
    limit = limit_for(rate_bps=rate_bps, delay_us=delay_us, buffer_bytes=round(buffer_bytes), packet_bytes=PACKET_BYTES)
    return Shape(delay_us=delay_us, rate_bps=rate_bps, limit_packets=limit)


def clos(
    hosts_per_leaf: tuple[int, ...], *, spines: int, host_port: Shape, spine_link: Shape, name: str, seed: int
) -> Topology:
    """Return a leaf-spine fabric; hosts' links are shaped both ways: down by `host_port`, up with a deep queue."""
    up = replace(host_port, limit_packets=HOST_QUEUE_PACKETS)
    leaves = [f"leaf{index + 1}" for index in range(len(hosts_per_leaf))]
    tops = [f"spine{index + 1}" for index in range(spines)]
    homes = [leaf for leaf, count in zip(leaves, hosts_per_leaf, strict=True) for _ in range(count)]
    hosts = tuple(f"h{index + 1}" for index in range(len(homes)))
    return Topology(
        name=name,
        hosts=hosts,
        switches=(*(Switch(leaf, "leaf") for leaf in leaves), *(Switch(top, "spine") for top in tops)),
        links=(
            *(Link(host, leaf, up, host_port) for host, leaf in zip(hosts, homes, strict=True)),
            *(Link(leaf, top, spine_link, spine_link) for leaf in leaves for top in tops),
        ),
        mtu=MTU,
        seed=seed,
    )
