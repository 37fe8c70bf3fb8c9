"""The reference fabric: one sender and one receiver with several spines between them.

Links between leaves and spines have 250 Mbit/s, 0.5 ms and a buffer of one bandwidth-delay product; hosts' links are
unshaped. The protocol runs with its defaults, which are made for such RTTs (2 ms).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from netns.netem.shape import Shape
from netns.topology.model import ETHERNET_HEADER_BYTES, Topology, leaf_spine, with_buffer
from srd.proto.wire.data import HEADER_BYTES
from srd.sim.host import WIRE_OVERHEAD_BYTES

MTU: Final = 9000
PACKET_BYTES: Final = MTU + ETHERNET_HEADER_BYTES
RATE_BPS: Final = 250_000_000
LINK_US: Final = 500.0
RTT_S: Final = 4 * LINK_US / 1e6
LINK: Final = with_buffer(Shape(delay_us=LINK_US, rate_bps=RATE_BPS), mtu=MTU)
SENDER: Final = "h1"
RECEIVER: Final = "h2"
ENDS: Final = (SENDER, RECEIVER)
PAYLOAD_FRACTION: Final = (PACKET_BYTES - WIRE_OVERHEAD_BYTES - HEADER_BYTES) / PACKET_BYTES
"""Payload as a fraction of a full packet on the wire."""


def fabric(*, spines: int, name: str, seed: int, change: Callable[[str, str], Shape] | None = None) -> Topology:
    """Return the fabric; `change(leaf, spine)` returns another shape for both directions of a link."""
    topology = leaf_spine(leaves=2, spines=spines, hosts_per_leaf=1, mtu=MTU, shape=LINK, name=name, seed=seed)
    if change is None:
        return topology
    shapes = {link.name: change(link.a, link.b) for link in topology.links if link.shaped}
    return replace(
        topology,
        links=tuple(
            replace(link, shape_ab=shapes[link.name], shape_ba=shapes[link.name]) if link.name in shapes else link
            for link in topology.links
        ),
    )
