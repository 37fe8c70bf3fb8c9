"""Jitter: each packet is delayed by 50 ms +- 1 ms, and +- 10 ms, in each direction, so that paths reorder.

4 spines; the links from the leaves to the spines delay packets, the links down do not: one random delay per packet and
direction, as with one `netem delay 50ms 10ms`. The links have no rate limit, as jitter would not reorder then. The
sender offers 1 MB every 10 ms (0.8 Gbit/s), for two seconds after half a second of warm-up.

`spurious_fraction`: duplicate packets over all received packets, of the worse of the two jitters. Nothing is lost, so
each duplicate is a spurious retransmission.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from netns.netem.shape import Shape
from netns.topology.model import Topology, leaf_spine
from scripts.benches.fabrics import MTU
from scripts.benches.outcome import Round, Wanted
from scripts.harness.errors import BenchError
from srd.proto.config import ProtocolConfig
from srd.sim.simulation import NS_PER_S, Connection, Simulation

WANTED: Final = (Wanted("spurious_fraction", "<", 0.01),)
SECONDS: Final = 2.0
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


def fabric(jitter_us: float, *, seed: int) -> Topology:
    """Return a fabric with delayed links up to the spines, and links down without delay."""
    shape = Shape(delay_us=DELAY_US, jitter_us=jitter_us, limit_packets=1_000_000)
    topology = leaf_spine(leaves=2, spines=4, hosts_per_leaf=1, mtu=MTU, name="jitter", seed=seed)
    return replace(
        topology,
        links=tuple(replace(link, shape_ab=shape) if link.a in topology.leaves else link for link in topology.links),
    )


def _spurious(jitter_us: float, *, seed: int, seconds: float) -> dict[str, float]:
    simulation = Simulation(fabric(jitter_us, seed=seed), config=ProtocolConfig(), seed=seed)
    (connection,) = simulation.connect([("h1", "h2")])
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
