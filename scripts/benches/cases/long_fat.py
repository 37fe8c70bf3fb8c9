"""Long fat network: 10 Gbit/s and an RTT of 100 ms, one peer: a bandwidth-delay product of 125 MB, MTU 9000.

2 leaves and a spine; the links into the spine have the rate, a delay of 50 ms and a buffer of one bandwidth-delay
product; the links down are unshaped. 1 MiB messages, 400 MiB of them outstanding. SENDs need credit for all data in
flight, so the receive window is 512 MiB. Virtual hosts allocate no memory for it; real ones would use WRITEs, which
need no credit. All other settings are the defaults.

`capacity_fraction`: payload that lands over the link's capacity for payload, after two seconds, which cover slow start.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from netns.topology.model import Topology, leaf_spine
from scripts.benches.fabrics import MTU, buffered
from scripts.benches.outcome import Round, Wanted
from scripts.benches.reference_fabric import PAYLOAD_FRACTION, bulk
from srd.proto.config import ProtocolConfig

WANTED: Final = (Wanted("capacity_fraction", ">=", 0.9),)
SECONDS: Final = 0.5
WARM_UP_S: Final = 2.0
RATE_BPS: Final = 10_000_000_000
DELAY_US: Final = 50_000.0
BDP_BYTES: Final = RATE_BPS / 8 * 2 * DELAY_US / 1e6
OUTSTANDING: Final = 400
CONFIG: Final = ProtocolConfig(receive_window_bytes=512 << 20)


def measure(seed: int, seconds: float) -> Round:
    """One round."""
    running = bulk(fabric(seed=seed), seed=seed, outstanding=OUTSTANDING, config=CONFIG)
    goodput_bps = running.goodput_bps(warm_up_s=WARM_UP_S, seconds=seconds)
    sender = running.connection.sender
    return Round(
        seed,
        {
            "capacity_fraction": goodput_bps / (RATE_BPS * PAYLOAD_FRACTION),
            "retransmitted_fraction": sender.retransmitted / sender.packets,
        },
    )


def fabric(*, seed: int) -> Topology:
    """Return a fabric whose links into the spine have rate and delay, and whose links down are unshaped."""
    shape = buffered(rate_bps=RATE_BPS, delay_us=DELAY_US, buffer_bytes=BDP_BYTES)
    topology = leaf_spine(leaves=2, spines=1, hosts_per_leaf=1, mtu=MTU, name="long-fat", seed=seed)
    return replace(
        topology,
        links=tuple(replace(link, shape_ab=shape) if link.a in topology.leaves else link for link in topology.links),
    )
