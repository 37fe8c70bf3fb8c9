"""Incast: many hosts send one message each to one host, all at the same instant.

48 senders on 4 leaves (12 each), the receiver on a fifth; 4 spines; every link has 100 Gbit/s and 5 us, so that the
receiver's port is the bottleneck. Switch ports buffer one bandwidth-delay product: 100 Gbit/s x 40 us = 500 kB. Peers
are open before the start, as in a job behind a barrier, but have sent nothing.

Completion time: from the start to the delivery of the message at the receiver. Ideal: the time that a port which is
never idle takes for all messages with their headers, after the first packet has crossed the empty fabric; no transport
can deliver the last message earlier. `spread_ratio` is the slowest sender's time over the fastest's. The last one takes
1.041 to 1.052 times the ideal with seeds 1 to 5: the port idles while windows recover from the start, and when the last
few senders still have windows for 48.

`incast-1000` is the same with 1,000 senders (250 per leaf) x 64 KB: a single packet of each is 18 times what the port
buffers. `resent_fraction` is the packets that were sent again over all that were sent. `incast-8192` has 8,192 senders
(128 on each of 64 leaves) x 64 KB, and must end.
"""

from __future__ import annotations

from typing import Final

from netns.topology.model import Topology
from scripts.benches.fabrics import PACKET_BYTES, buffered, clos, wire_bytes
from scripts.benches.outcome import Round
from scripts.harness.errors import BenchError
from srd.proto.wire.data import HEADER_BYTES
from srd.sim.experiments.experiment import Experiment, run
from srd.sim.experiments.workload import Flow
from srd.sim.host import WIRE_OVERHEAD_BYTES

RATE_BPS: Final = 100_000_000_000
LINK_US: Final = 5.0
HOPS: Final = 4
BDP_BYTES: Final = RATE_BPS * 2 * HOPS * LINK_US / 8e6
SPINES: Final = 4
PAYLOAD_BYTES: Final = PACKET_BYTES - WIRE_OVERHEAD_BYTES - HEADER_BYTES
TIMEOUT_S: Final = 1.0
"""Timeout for all messages in virtual time: hundreds of times what they should take."""


def fabric(*, senders: int, seed: int, leaves: int = 4) -> Topology:
    """Return so many leaves of senders and one with the receiver, which is the last host."""
    port = buffered(rate_bps=RATE_BPS, delay_us=LINK_US, buffer_bytes=BDP_BYTES)
    hosts_per_leaf = (*(senders // leaves,) * leaves, 1)
    return clos(hosts_per_leaf, spines=SPINES, host_port=port, spine_link=port, name="incast", seed=seed)


def measure(seed: int, _seconds: float, *, senders: int, message_bytes: int, leaves: int = 4) -> Round:
    """One round: each sender sends a message."""
    topology = fabric(senders=senders, seed=seed, leaves=leaves)
    *sources, sink = topology.hosts
    flows = tuple(Flow(source, sink, message_bytes) for source in sources)
    result = run(Experiment(topology, flows, seed=seed, limit_s=TIMEOUT_S))
    if result.failures:
        raise BenchError(result.failures[0])
    times_us = [each.fct_us for each in result.completions if each.fct_us is not None]
    if len(times_us) < senders:
        raise BenchError(f"{len(times_us)} of {senders} messages were delivered in {TIMEOUT_S:g} s")
    ideal_us = _ideal_us(senders, message_bytes=message_bytes, payload_bytes=PAYLOAD_BYTES)
    port, sent = result.counters[f"{topology.switch_of(sink)}>{sink}"], result.sent["packets_sent"]
    return Round(
        seed,
        {
            "senders_done": len(times_us),
            "max_over_ideal_ratio": max(times_us) / ideal_us,
            "spread_ratio": max(times_us) / min(times_us),
            "ideal_us": ideal_us,
            "max_us": max(times_us),
            "min_us": min(times_us),
            "resent_fraction": result.sent["packets_resent"] / sent,
            "overlimit_fraction": port["overlimit"] / sent,
        },
    )


def _ideal_us(senders: int, *, message_bytes: int, payload_bytes: int) -> float:
    """Return the time of the first packet to the port, plus that of all messages through it."""
    overhead_bytes = HEADER_BYTES + WIRE_OVERHEAD_BYTES
    all_bytes = senders * wire_bytes(message_bytes, packet_payload_bytes=payload_bytes, overhead_bytes=overhead_bytes)
    first_packet_us = (HOPS - 1) * PACKET_BYTES * 8e6 / RATE_BPS
    return HOPS * LINK_US + first_packet_us + all_bytes * 8e6 / RATE_BPS
