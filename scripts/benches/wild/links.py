"""The dumbbells of the case `wild-lab`, which are those of `wild`.

Two hosts a side, MTU 1500, a buffer of one bandwidth-delay product (drop tail).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from netns.netem.shape import Shape, limit_for
from netns.topology.dumbbell import dumbbell
from netns.topology.model import ETHERNET_HEADER_BYTES, Topology
from srd.proto.wire.data import HEADER_BYTES
from srd.sim.host import WIRE_OVERHEAD_BYTES

MTU: Final = 1500
PACKET_BYTES: Final = MTU + ETHERNET_HEADER_BYTES
PAYLOAD_FRACTION: Final = (PACKET_BYTES - WIRE_OVERHEAD_BYTES - HEADER_BYTES) / PACKET_BYTES
"""Payload of ours as a fraction of a full packet on the wire."""


def bottleneck(
    *, rate_bps: int, rtt_s: float, seed: int, jitter_us: float = 0.0, loss_percent: float = 0.0, name: str = "wild"
) -> Topology:
    """Return a dumbbell with this rate and round trip, half of it each way; jitter both ways, losses one way."""
    delay_us = rtt_s / 2 * 1e6
    buffer_bytes = round(rate_bps / 8 * rtt_s)
    limit = limit_for(rate_bps=rate_bps, delay_us=delay_us, buffer_bytes=buffer_bytes, packet_bytes=PACKET_BYTES)
    shape = Shape(delay_us=delay_us, jitter_us=jitter_us, rate_bps=rate_bps, limit_packets=limit)
    topology = dumbbell(hosts_per_side=2, bottleneck=shape, mtu=MTU, name=name, seed=seed)
    lossy = replace(shape, loss_percent=loss_percent)
    return replace(
        topology,
        links=tuple(replace(link, shape_ab=lossy) if link.name == "left-right" else link for link in topology.links),
    )
