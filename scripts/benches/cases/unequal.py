"""Unequal: how much of its fabric's capacity for payload a stream uses whose paths have very different lengths.

One sender, one receiver, and a spine for each path of 250 Mbit/s (see reference_fabric.py). A link buffers one
bandwidth-delay product of its own path, and no less than those of the reference fabric. `short_long`: 4 paths, three of
them 2 ms longer each way; `mostly_long`: 8 paths, six of them 5 ms longer each way; `spread`: 4 paths of 0.5, 5, 20 and
50 ms each way. `unequal_capacity_fraction`: the least of the three, after a warm-up that covers the start over the
longest path. The rest is lost on the short paths, whose buffers hold no more than twice the delay target: 0.875 to
0.890 with seeds 1 to 5. `drift_ok`: 1 if a clock of the receiver that is off by an hour, fast by 100 ppm (in another
run slow), and stepped forward and back by a second while it is measured changes neither the payload that lands by more
than `TOLERANCE` nor the fraction of packets sent again by more than that.
"""

from __future__ import annotations

from typing import Final

from netns.netem.shape import Shape, limit_for
from scripts.benches.outcome import Round
from scripts.benches.reference_fabric import ENDS, PACKET_BYTES, PAYLOAD_FRACTION, RATE_BPS, RECEIVER, RTT_S, fabric
from srd.sim.experiments.bulk import BulkFigures, bulk
from srd.sim.host import HostClock

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
STEPS_S: Final = (1.0, -1.0, 0.0)
"""Of a wrong clock, after each third of the measurement."""
TOLERANCE: Final = 0.02


def measure(seed: int, seconds: float) -> Round:
    """Some paths are much longer than others; and one of these fabrics with wrong clocks."""
    spans = {name: _unequal(name, seed=seed, seconds=seconds) for name in ONE_WAY_MS}
    off = {name: _unequal("short_long", seed=seed, seconds=seconds, drift_ppm=ppm) for name, ppm in DRIFTS_PPM.items()}
    fractions = {
        name: span.goodput_bps / (len(ONE_WAY_MS.get(name, ONE_WAY_MS["short_long"])) * RATE_BPS * PAYLOAD_FRACTION)
        for name, span in (spans | off).items()
    }
    right = spans["short_long"]
    figures = {
        "unequal_capacity_fraction": min(fractions[name] for name in ONE_WAY_MS),
        "drift_ok": float(all(_is_like(span, right) for span in off.values())),
    }
    for name, span in (spans | off).items():
        figures[f"capacity_fraction_{name}"] = fractions[name]
        figures[f"resent_fraction_{name}"] = span.resent_fraction
    return Round(seed, figures)


def _is_like(span: BulkFigures, right: BulkFigures) -> bool:
    """Whether a run differs from that with right clocks by no more than the tolerance."""
    goodput = abs(span.goodput_bps / right.goodput_bps - 1)
    return max(goodput, span.resent_fraction - right.resent_fraction) <= TOLERANCE


def _unequal(name: str, *, seed: int, seconds: float, drift_ppm: float | None = None) -> BulkFigures:
    """Measure one fabric, whose spines have the delays of `ONE_WAY_MS`; with a wrong clock if there is a drift."""
    one_way_ms = ONE_WAY_MS[name]

    def shape(_leaf: str, spine: str) -> Shape:
        delay_us = one_way_ms[int(spine.removeprefix("spine")) - 1] * 1e3 / 2
        buffer_bytes = round(RATE_BPS / 8 * max(4 * delay_us / 1e6, RTT_S))
        limit = limit_for(rate_bps=RATE_BPS, delay_us=delay_us, buffer_bytes=buffer_bytes, packet_bytes=PACKET_BYTES)
        return Shape(delay_us=delay_us, rate_bps=RATE_BPS, limit_packets=limit)

    clock = HostClock() if drift_ppm is None else HostClock(offset_s=OFFSET_S, drift_ppm=drift_ppm)
    topology = fabric(spines=len(one_way_ms), name=name.replace("_", "-"), seed=seed, change=shape)
    running = bulk(topology, seed=seed, ends=ENDS, clocks={} if drift_ppm is None else {RECEIVER: clock})
    return running.span(
        seconds,
        warm_up_s=WARM_UP_S,
        steps=len(STEPS_S),
        after_step=lambda step: None if drift_ppm is None else clock.step(STEPS_S[step]),
    )
