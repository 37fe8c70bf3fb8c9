"""The reference fabric: one sender and one receiver with several spines between them.

Links between leaves and spines have 250 Mbit/s, 0.5 ms and a buffer of one bandwidth-delay product; hosts' links are
unshaped. The protocol runs with its defaults, which are made for such RTTs (2 ms).
"""

from __future__ import annotations

from typing import Final

from netns.netem.shape import Shape
from netns.topology.model import ETHERNET_HEADER_BYTES, Topology, leaf_spine, with_buffer

MTU: Final = 9000
PACKET_BYTES: Final = MTU + ETHERNET_HEADER_BYTES
LINK_US: Final = 500.0
RTT_S: Final = 4 * LINK_US / 1e6
LINK: Final = with_buffer(Shape(delay_us=LINK_US, rate_bps=250_000_000), mtu=MTU)
SENDER: Final = "h1"
RECEIVER: Final = "h2"
ENDS: Final = (SENDER, RECEIVER)


def fabric(*, spines: int, name: str, seed: int, link: Shape = LINK) -> Topology:
    return leaf_spine(leaves=2, spines=spines, hosts_per_leaf=1, mtu=MTU, shape=link, name=name, seed=seed)
