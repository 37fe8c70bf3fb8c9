"""Fair: 2, 8 and 32 flows share one bottleneck, the port of the host that all of them send to.

The fabric of the scenario `incast` (100 Gbit/s, 5 us, ports with a buffer of one bandwidth-delay product), with 8 hosts
on each of four leaves; one flow per host.
Half of the flows start at once, the others 50 RTTs (of 40 us) later, when the link is full. The measurement takes 100
RTTs, and begins 100 RTTs after the last start.

`jain_index`: (sum x)^2 / (n sum x^2) of the payload that landed of each flow; the worst of the three.
`median_queue_bdp`: median of the bottleneck's queue, sampled four times per RTT, over the bandwidth-delay product; the
worst of the three. `utilisation_*`: payload and headers that left the port, over its rate.
"""

from __future__ import annotations

from statistics import median
from typing import Final

from netns.topology.model import Topology
from scripts.benches.fabrics import buffered, clos
from scripts.benches.outcome import Round
from srd.sim.experiments.bulk import streams
from srd.sim.presets import MICROSECOND_FABRIC
from srd.sim.simulation import NS_PER_S, Simulation

FLOWS: Final = (2, 8, 32)
SENDERS: Final = 32
LEAVES: Final = 4
SPINES: Final = 4
RATE_BPS: Final = 100_000_000_000
LINK_US: Final = 5.0
HOPS: Final = 4
RTT_S: Final = 2 * HOPS * LINK_US / 1e6
LATER_RTTS: Final = 50
SETTLING_RTTS: Final = 100
MEASURED_RTTS: Final = 100
SAMPLES_PER_RTT: Final = 4


def measure(seed: int, _seconds: float) -> Round:
    """One round: 2, 8, 32 flows."""
    figures: dict[str, float] = {}
    for flows in FLOWS:
        figures |= {f"{key}_{flows}": value for key, value in _share(flows, seed=seed).items()}
    worst = {
        "jain_index": min(figures[f"jain_index_{flows}"] for flows in FLOWS),
        "median_queue_bdp": max(figures[f"median_queue_bdp_{flows}"] for flows in FLOWS),
    }
    return Round(seed, worst | figures)


def fabric(*, seed: int) -> Topology:
    """Return four leaves of senders, and one with the receiver, which is the last host."""
    port = buffered(rate_bps=RATE_BPS, delay_us=LINK_US, buffer_bytes=RATE_BPS / 8 * RTT_S)
    hosts_per_leaf = (*(SENDERS // LEAVES,) * LEAVES, 1)
    return clos(hosts_per_leaf, spines=SPINES, host_port=port, spine_link=port, name="incast", seed=seed)


def _share(flows: int, *, seed: int) -> dict[str, float]:
    topology = fabric(seed=seed)
    simulation = Simulation(topology, config=MICROSECOND_FABRIC, seed=seed)
    sink = topology.hosts[-1]
    every = SENDERS // flows  # spread over the leaves
    started = streams(simulation, [(topology.hosts[n * every], sink) for n in range(flows)])
    for stream in started[::2]:
        stream.start()
    simulation.run(seconds=LATER_RTTS * RTT_S)
    for stream in started[1::2]:
        stream.start()
    simulation.run(seconds=SETTLING_RTTS * RTT_S)
    port = simulation.fabric.links[topology.switch_of(sink), sink]
    receivers = [stream.connection.receiver for stream in started]
    before = [each.landed_bytes for each in receivers]
    port_before_bytes = port.bytes
    waits_ns = []
    for _ in range(MEASURED_RTTS * SAMPLES_PER_RTT):
        simulation.run(seconds=RTT_S / SAMPLES_PER_RTT)
        waits_ns.append(port.wait_ns)
    simulation.require_no_failures()
    shares = [each.landed_bytes - start for each, start in zip(receivers, before, strict=True)]
    return {
        "jain_index": jain_index(shares),
        "median_queue_bdp": median(waits_ns) / NS_PER_S / RTT_S,
        "utilisation": (port.bytes - port_before_bytes) * 8 / RATE_BPS / (MEASURED_RTTS * RTT_S),
    }


def jain_index(shares: list[int]) -> float:
    """Return Jain's fairness index: 1 if all shares are equal, 1/n if one has everything; 0 if all are 0."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 0.0
