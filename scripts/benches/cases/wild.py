"""Wild: beside TCP, and outside of one data centre.

A dumbbell with MTU 1500; the bottleneck has a buffer of one bandwidth-delay product.

TCP is a model (srd/sim/models), of CUBIC and of BBR. All SRD settings are the defaults. Figures:

- `tcp_share_cubic`, `tcp_share_bbr`: what one TCP flow gets of 100 Mbit/s and 20 ms beside one of ours, over half of
  the bottleneck's rate; `own_share_*` what ours gets. TCP starts a second after ours; the measurement begins
  `SETTLING_S` later and takes `SHARED_S`. `resent_fraction_cubic`: what ours sent again, from the start on. BBR keeps
  two bandwidth-delay products in flight, whatever is lost, and leaves ours and CUBIC a tenth of their halves. So beside
  it the bound excludes only that ours starves, and `tcp_share_bbr` has none.
- `queue_ms_20ms_path`: the median of the queue that ours alone builds there: what a ping beside it waits. The delay
  target is 4 ms, and what the queue's own swings add to it as jitter; the bound is less than half of the buffer, which
  TCP fills.
- `jitter_capacity_fraction`: alone, 200 Mbit/s, 5 ms +- 2 ms each way: payload that lands, over capacity for payload;
  `jitter_20ms_capacity_fraction`: 100 Mbit/s, 10 ms +- 4 ms.
- `wan_capacity_fraction`, `wan_loss_capacity_fraction`: 60 MB over 100 Mbit/s and 100 ms, from the first byte posted to
  the last delivered, so with its slow start; without losses, and with 1 %.
- `satellite_fraction`: the same over 20 Mbit/s and 600 ms; `satellite_ok`: 1 if it is at least 0.7.
"""

from __future__ import annotations

from statistics import median
from typing import Final

from netns.topology.model import Topology
from scripts.benches.outcome import Round
from scripts.benches.wild.links import PACKET_BYTES, PAYLOAD_FRACTION, bottleneck
from scripts.benches.wild.tcp import TcpFlow
from scripts.harness.errors import BenchError
from srd.proto.config import ProtocolConfig
from srd.sim.experiments.bulk import BulkSimulation, bulk, streams
from srd.sim.models.controllers import CONTROLLERS
from srd.sim.simulation import NS_PER_S, Simulation

BOUNDS: Final = (
    "tcp_share_cubic >= 0.5",
    "own_share_cubic >= 0.5",
    "resent_fraction_cubic <= 0.03",
    "own_share_bbr >= 0.05",
    "queue_ms_20ms_path <= 9",
    "jitter_capacity_fraction >= 0.9",
    "jitter_20ms_capacity_fraction >= 0.9",
    "wan_capacity_fraction >= 0.9",
    "wan_loss_capacity_fraction >= 0.85",
    "satellite_ok >= 1",
)
"""A share of ours of half of the fair one is one of TCP's of 1.5, and the other way round."""
SETTLING_S: Final = 5.0
SHARED_S: Final = 15.0
SHARED_BPS: Final = 100_000_000
SHARED_RTT_S: Final = 0.02
SAMPLE_S: Final = 0.01
ALONE_WARM_UP_S: Final = 3.0
ALONE_S: Final = 5.0
TRANSFER_BYTES: Final = 60_000_000
MESSAGE_BYTES: Final = 1_000_000
ENDS: Final = ("h1", "h3")
LIMIT_S: Final = 120.0
"""Within which a transfer must end: three times what it takes at half of the satellite's rate."""


def measure(seed: int, _seconds: float) -> Round:
    """One round: all figures."""
    figures: dict[str, float] = {}
    for name in ("cubic", "bbr"):
        figures |= beside(name, seed=seed)
    figures |= alone(seed=seed)
    figures["jitter_capacity_fraction"] = jitter(rate_bps=200_000_000, rtt_s=0.01, jitter_us=2000, seed=seed)
    figures["jitter_20ms_capacity_fraction"] = jitter(rate_bps=SHARED_BPS, rtt_s=0.02, jitter_us=4000, seed=seed)
    figures["wan_capacity_fraction"] = transfer(rate_bps=100_000_000, rtt_s=0.1, seed=seed)
    figures["wan_loss_capacity_fraction"] = transfer(rate_bps=100_000_000, rtt_s=0.1, loss_percent=1, seed=seed)
    figures["satellite_fraction"] = transfer(rate_bps=20_000_000, rtt_s=0.6, seed=seed)
    figures["satellite_ok"] = int(figures["satellite_fraction"] >= 0.7)
    return Round(seed, figures)


def _bulk(topology: Topology, *, seed: int) -> BulkSimulation:
    """Start a stream over a dumbbell."""
    return bulk(topology, seed=seed, ends=ENDS, message_bytes=MESSAGE_BYTES)


def beside(tcp: str, *, seed: int) -> dict[str, float]:
    """One flow of ours beside one of TCP."""
    running = _bulk(bottleneck(rate_bps=SHARED_BPS, rtt_s=SHARED_RTT_S, seed=seed), seed=seed)
    other = TcpFlow(running.simulation.fabric, "h2", "h4", controller=CONTROLLERS[tcp]())
    running.simulation.run(seconds=1)
    other.start()
    running.simulation.run(seconds=SETTLING_S)
    theirs = other.sender.delivered
    ours_bps = running.span(SHARED_S, warm_up_s=0.0).goodput_bps / PAYLOAD_FRACTION
    theirs_bps = (other.sender.delivered - theirs) * 8 * PACKET_BYTES / SHARED_S
    return {
        f"tcp_share_{tcp}": theirs_bps / (SHARED_BPS / 2),
        f"own_share_{tcp}": ours_bps / (SHARED_BPS / 2),
        f"resent_fraction_{tcp}": running.resent_fraction,
        f"tcp_lost_fraction_{tcp}": other.sender.lost / other.sender.sent,
    }


def alone(*, seed: int) -> dict[str, float]:
    """The queue that a flow of ours builds by itself."""
    running = _bulk(bottleneck(rate_bps=SHARED_BPS, rtt_s=SHARED_RTT_S, seed=seed), seed=seed)
    port = running.simulation.fabric.links["left", "right"]
    span = running.span(ALONE_S, warm_up_s=ALONE_WARM_UP_S, steps=round(ALONE_S / SAMPLE_S), links=[port])
    return {
        "queue_ms_20ms_path": median(span.waits_ns) / 1e6,
        "capacity_fraction_20ms_path": span.goodput_bps / (SHARED_BPS * PAYLOAD_FRACTION),
    }


def jitter(*, rate_bps: int, rtt_s: float, jitter_us: float, seed: int) -> float:
    """A path with jitter: netem's, whose packets do not overtake each other where there is a rate."""
    topology = bottleneck(rate_bps=rate_bps, rtt_s=rtt_s, jitter_us=jitter_us, seed=seed)
    span = _bulk(topology, seed=seed).span(ALONE_S, warm_up_s=ALONE_WARM_UP_S)
    return span.goodput_bps / (rate_bps * PAYLOAD_FRACTION)


def transfer(*, rate_bps: int, rtt_s: float, seed: int, loss_percent: float = 0.0) -> float:
    """Return the rate of a transfer with its start, over the capacity for payload."""
    topology = bottleneck(rate_bps=rate_bps, rtt_s=rtt_s, loss_percent=loss_percent, seed=seed)
    simulation = Simulation(topology, config=ProtocolConfig(), seed=seed)
    (stream,) = streams(simulation, [ENDS], message_bytes=MESSAGE_BYTES, messages=TRANSFER_BYTES // MESSAGE_BYTES)
    deliveries, started_ns = stream.connection.destination.deliveries, simulation.now_ns
    stream.start()
    if not simulation.run(seconds=LIMIT_S, done=lambda: len(deliveries) == TRANSFER_BYTES // MESSAGE_BYTES):
        raise BenchError(f"{len(deliveries)} messages of {TRANSFER_BYTES // MESSAGE_BYTES} in {LIMIT_S:g} s")
    seconds = (simulation.now_ns - started_ns) / NS_PER_S
    return TRANSFER_BYTES * 8 / seconds / (rate_bps * PAYLOAD_FRACTION)
