"""Unequal paths: capacity where some paths are much longer than others, and a receiver's clock that is wrong.

Fabrics of one sender, one receiver and a spine for each path (see reference_fabric.py: 250 Mbit/s, 0.5 ms a link, so
1 ms each way) with links of other delays. A link buffers one bandwidth-delay product of its own path, and no less than
those of the reference fabric.
`short_long`: 4 paths, three of them 2 ms longer each way; `mostly_long`: 8 paths, six of them 5 ms longer each way;
`spread`: 4 paths of 0.5, 5, 20 and 50 ms each way.

`unequal_capacity_fraction`: payload that lands over the capacity of all paths for payload, least of the three fabrics;
in three seconds, after a warm-up that covers the start of the transfer over the longest path. The rest is lost on the
short paths, whose buffers hold no more than twice the delay target: 0.875 to 0.890 with seeds 1 to 5.

`drift_ok`: 1 if a clock of the receiver that is off by an hour, fast by 100 ppm (in another run slow), and stepped
forward and back by a second while it is measured changes neither the payload that lands by more than `TOLERANCE` nor
the fraction of packets sent again by more than that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from netns.netem.shape import Shape
from netns.topology.model import Topology
from scripts.benches.fabrics import buffered
from scripts.benches.outcome import Round, Wanted
from scripts.benches.reference_fabric import PAYLOAD_FRACTION, RATE_BPS, RECEIVER, RTT_S, bulk, fabric
from srd.sim.host import HostClock

WANTED: Final = (Wanted("unequal_capacity_fraction", ">=", 0.85), Wanted("drift_ok", ">=", 1))
SECONDS: Final = 3.0
"""Within one second runs that only chance sets apart differ by more than `TOLERANCE`."""
WARM_UP_S: Final = 2.0
ONE_WAY_MS: Final = {
    "short_long": (1.0, 3.0, 3.0, 3.0),
    "mostly_long": (1.0, 1.0, 6.0, 6.0, 6.0, 6.0, 6.0, 6.0),
    "spread": (0.5, 5.0, 20.0, 50.0),
}
"""One-way delay of each path, by fabric."""
DRIFTS_PPM: Final = {"fast": 100.0, "slow": -100.0}
OFFSET_S: Final = 4290.0
"""Its lower 32 bits, in microseconds, wrap during the measurement."""
STEP_S: Final = 1.0
TOLERANCE: Final = 0.02


@dataclass(frozen=True, slots=True)
class Result:
    """What was measured in one run."""

    capacity_fraction: float
    resent_fraction: float

    def is_like(self, other: Result) -> bool:
        """Whether it differs from `other` by no more than the tolerance."""
        goodput = abs(self.capacity_fraction / other.capacity_fraction - 1)
        return max(goodput, self.resent_fraction - other.resent_fraction) <= TOLERANCE


def measure(seed: int, seconds: float) -> Round:
    """One round: the three fabrics, and one of them with wrong clocks."""
    results = {name: _run(name, seed=seed, seconds=seconds) for name in ONE_WAY_MS}
    figures = {"unequal_capacity_fraction": min(result.capacity_fraction for result in results.values())}
    off = {name: _run("short_long", seed=seed, seconds=seconds, drift_ppm=ppm) for name, ppm in DRIFTS_PPM.items()}
    figures["drift_ok"] = float(all(result.is_like(results["short_long"]) for result in off.values()))
    for name, result in (results | off).items():
        figures[f"capacity_fraction_{name}"] = result.capacity_fraction
        figures[f"resent_fraction_{name}"] = result.resent_fraction
    return Round(seed, figures)


def topology(name: str, *, seed: int) -> Topology:
    """Return one of the fabrics; its spines have the delays of `ONE_WAY_MS`, in order."""
    one_way_ms = ONE_WAY_MS[name]

    def shape(_leaf: str, spine: str) -> Shape:
        delay_us = one_way_ms[int(spine.removeprefix("spine")) - 1] * 1e3 / 2
        buffer_bytes = RATE_BPS / 8 * max(4 * delay_us / 1e6, RTT_S)
        return buffered(rate_bps=RATE_BPS, delay_us=delay_us, buffer_bytes=buffer_bytes)

    return fabric(spines=len(one_way_ms), name=name.replace("_", "-"), seed=seed, change=shape)


def _run(name: str, *, seed: int, seconds: float, drift_ppm: float | None = None) -> Result:
    """Measure one fabric; with a wrong clock of the receiver if there is a drift."""
    clock = None if drift_ppm is None else HostClock(offset_s=OFFSET_S, drift_ppm=drift_ppm)
    running = bulk(topology(name, seed=seed), seed=seed, clocks={} if clock is None else {RECEIVER: clock})
    running.simulation.run(seconds=WARM_UP_S)
    sender, receiver = running.connection.sender, running.connection.receiver
    landed_bytes, packets, resent = receiver.landed_bytes, sender.packets, sender.retransmitted
    for step_s in (STEP_S, -STEP_S, 0.0):
        running.simulation.run(seconds=seconds / 3)
        if clock is not None:
            clock.step(step_s)
    running.simulation.require_no_failures()
    capacity_bps = len(ONE_WAY_MS[name]) * RATE_BPS * PAYLOAD_FRACTION
    return Result(
        capacity_fraction=(receiver.landed_bytes - landed_bytes) * 8 / seconds / capacity_bps,
        resent_fraction=(sender.retransmitted - resent) / (sender.packets - packets),
    )
