"""Jitter: each packet is delayed by 50 ms +- 1 ms, and +- 10 ms, in each direction, so that paths reorder.

4 spines; the links from the leaves to the spines delay packets, the links down do not: one random delay per packet and
direction, as with one `netem delay 50ms 10ms`. The links have no rate limit, as jitter would not reorder then. The
sender offers 1 MB every 10 ms (0.8 Gbit/s), for two seconds after half a second of warm-up.

`spurious_fraction`: duplicate packets over all received packets, of the worse of the two jitters. Nothing is lost, so
each duplicate is a spurious retransmission.
"""

from __future__ import annotations

from typing import Final

from netns.netem.shape import Shape
from scripts.benches.outcome import Round
from scripts.benches.reference_fabric import RECEIVER, SENDER, shaped_upwards
from scripts.harness.errors import BenchError
from srd.proto.config import ProtocolConfig
from srd.sim.simulation import NS_PER_S, Connection, Simulation

WARM_UP_S: Final = 0.5
DRAIN_S: Final = 1.0
DELAY_US: Final = 50_000.0
JITTERS_US: Final = {"1ms": 1_000.0, "10ms": 10_000.0}
MESSAGE_BYTES: Final = 1_000_000
EVERY_NS: Final = NS_PER_S // 100


def measure(seed: int, seconds: float) -> Round:
    """One round: both jitters."""
    figures: dict[str, float] = {}
    for name, jitter_us in JITTERS_US.items():
        figures |= {f"{key}_{name}": value for key, value in _spurious(jitter_us, seed=seed, seconds=seconds).items()}
    worst = max(figures[f"spurious_fraction_{name}"] for name in JITTERS_US)
    return Round(seed, {"spurious_fraction": worst} | figures)


def _spurious(jitter_us: float, *, seed: int, seconds: float) -> dict[str, float]:
    shape = Shape(delay_us=DELAY_US, jitter_us=jitter_us, limit_packets=1_000_000)
    topology = shaped_upwards(shape, spines=4, name="jitter", seed=seed)
    simulation = Simulation(topology, config=ProtocolConfig(), seed=seed)
    (connection,) = simulation.connect([(SENDER, RECEIVER)])
    messages = _offer(simulation, connection, seconds=WARM_UP_S + seconds)
    simulation.run(seconds=WARM_UP_S + seconds + DRAIN_S)
    simulation.require_no_failures()
    receiver = connection.receiver
    delivered = len(connection.destination.deliveries)
    if delivered < messages:
        raise BenchError(f"{delivered} of {messages} messages were delivered {DRAIN_S:g} s after the last was posted")
    return {
        "spurious_fraction": receiver.duplicates / receiver.packets,
        "duplicates": float(receiver.duplicates),
        "packets": float(receiver.packets),
    }


def _offer(simulation: Simulation, connection: Connection, *, seconds: float) -> int:
    """Schedule messages at a constant rate; return their number."""

    def post(_now_ns: int) -> None:
        connection.post(length=MESSAGE_BYTES)
        connection.source.serve()

    times_ns = range(simulation.now_ns, simulation.now_ns + round(seconds * NS_PER_S), EVERY_NS)
    for at_ns in times_ns:
        simulation.fabric.at(at_ns, post)
    return len(times_ns)
