"""How much of its fabric's capacity for payload a stream uses: `slow-path`, `loss`, `ecn`, `unequal`, `long-fat`.

One sender, one receiver, and a spine for each path (see reference_fabric.py: 250 Mbit/s, 0.5 ms a link, so 1 ms each
way). `capacity_fraction*`: payload that lands over the capacity of all paths for payload, after a warm-up.

`slow-path`: the links of one of 8 spines have 25 Mbit/s with the others' buffer, as a port keeps its memory when it
falls back to a lower speed.

`loss`: 0.1, 1, 5 and 10 % of the packets on 4 paths, in both directions, between the spines and the receiver's leaf.
That is behind the bottleneck, so that lost packets use its rate: the capacity is rate x (1 - loss).

`ecn`: 4 spines, whose links mark packets that will wait for more than 0.6 ms: two packets, less than the controller's
target delay (1 ms). The baseline `unmarked` is the same without marks. `mean_queue_ms`: of the spines' links, sampled
every 2 ms; `queue_ratio`: marked over unmarked; `lost_fraction`: packets declared lost over those sent.

`unequal`: links of other delays. A link buffers one bandwidth-delay product of its own path, and no less than those of
the reference fabric. `short_long`: 4 paths, three of them 2 ms longer each way; `mostly_long`: 8 paths, six of them 5
ms longer each way; `spread`: 4 paths of 0.5, 5, 20 and 50 ms each way. `unequal_capacity_fraction`: the least of the
three, after a warm-up that covers the start over the longest path. The rest is lost on the short paths, whose buffers
hold no more than twice the delay target: 0.875 to 0.890 with seeds 1 to 5. `drift_ok`: 1 if a clock of the receiver
that is off by an hour, fast by 100 ppm (in another run slow), and stepped forward and back by a second while it is
measured changes neither the payload that lands by more than `TOLERANCE` nor the fraction of packets sent again by more
than that.

`long-fat`: one spine, 10 Gbit/s and an RTT of 100 ms, one peer: a bandwidth-delay product of 125 MB, which the links
into the spine buffer; the links down are unshaped. 1 MiB messages, 400 MiB of them outstanding. SENDs need credit for
all data in flight, so the receive window is 512 MiB. Virtual hosts allocate no memory for it; real ones would use
WRITEs, which need no credit. The warm-up of two seconds covers slow start.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean
from typing import Final

from netns.netem.shape import Shape
from netns.topology.model import Topology
from scripts.benches.fabrics import buffered
from scripts.benches.outcome import Round
from scripts.benches.reference_fabric import (
    LINK,
    PAYLOAD_FRACTION,
    RATE_BPS,
    RECEIVER,
    RTT_S,
    Span,
    bulk,
    fabric,
    shaped_upwards,
)
from srd.proto.config import ProtocolConfig
from srd.sim.host import HostClock

WARM_UP_S: Final = 0.5
SPINES: Final = 4

SLOW_PATH_SPINES: Final = 8
SLOW_BPS: Final = RATE_BPS // 10

LOSSES: Final = {"0.1pct": 0.1, "1pct": 1.0, "5pct": 5.0, "10pct": 10.0}

THRESHOLD_US: Final = 600.0
SAMPLE_S: Final = 0.002

UNEQUAL_WARM_UP_S: Final = 2.0
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

LONG_FAT_WARM_UP_S: Final = 2.0
LONG_FAT_BPS: Final = 10_000_000_000
LONG_FAT_US: Final = 50_000.0
LONG_FAT_OUTSTANDING: Final = 400
LONG_FAT_CONFIG: Final = ProtocolConfig(receive_window_bytes=512 << 20)


def slow_path(seed: int, seconds: float) -> Round:
    """One of 8 paths has a tenth of the others' rate."""

    def shape(_leaf: str, spine: str) -> Shape:
        return replace(LINK, rate_bps=SLOW_BPS) if spine == "spine1" else LINK

    running = bulk(fabric(spines=SLOW_PATH_SPINES, name="slow-path", seed=seed, change=shape), seed=seed)
    goodput_bps = running.span(seconds, warm_up_s=WARM_UP_S).goodput_bps
    capacity_bps = ((SLOW_PATH_SPINES - 1) * RATE_BPS + SLOW_BPS) * PAYLOAD_FRACTION
    return Round(
        seed,
        {
            "capacity_fraction": goodput_bps / capacity_bps,
            "goodput_mbps": goodput_bps / 1e6,
            "capacity_mbps": capacity_bps / 1e6,
            "retransmitted_fraction": running.resent_fraction,
        },
    )


def loss(seed: int, seconds: float) -> Round:
    """All paths lose packets, each amount in turn."""
    figures = {}
    for name, loss_percent in LOSSES.items():
        lossy = replace(LINK, loss_percent=loss_percent)
        shapes = {"leaf1": LINK, "leaf2": lossy}
        topology = fabric(spines=SPINES, name="loss", seed=seed, change=lambda leaf, _, by=shapes: by[leaf])  # type: ignore[misc]
        goodput_bps = bulk(topology, seed=seed).span(seconds, warm_up_s=WARM_UP_S).goodput_bps
        capacity_bps = SPINES * RATE_BPS * (1 - loss_percent / 100) * PAYLOAD_FRACTION
        figures[f"capacity_fraction_{name}"] = goodput_bps / capacity_bps
    return Round(seed, figures)


def ecn(seed: int, seconds: float) -> Round:
    """Links mark packets early, and in another run do not."""
    marked, unmarked = (_ecn(threshold_us, seed=seed, seconds=seconds) for threshold_us in (THRESHOLD_US, None))
    ratio = marked["mean_queue_ms"] / unmarked["mean_queue_ms"]
    return Round(seed, {"queue_ratio": ratio, **marked}, {"unmarked": unmarked})


def _ecn(threshold_us: float | None, *, seed: int, seconds: float) -> dict[str, float]:
    link = replace(LINK, ce_threshold_us=threshold_us)
    running = bulk(fabric(spines=SPINES, name="ecn", seed=seed, change=lambda _leaf, _spine: link), seed=seed)
    links = [running.simulation.fabric.links["leaf1", f"spine{index + 1}"] for index in range(SPINES)]
    span = running.span(seconds, warm_up_s=WARM_UP_S, steps=round(seconds / SAMPLE_S), links=links)
    return {
        "capacity_fraction": span.goodput_bps / (SPINES * RATE_BPS * PAYLOAD_FRACTION),
        "mean_queue_ms": fmean(span.waits_ns) / 1e6,
        "lost_fraction": span.lost_fraction,
        "marked_packets": sum(path.counters.ecn_ce for path in running.connection.sender.paths),
    }


def unequal(seed: int, seconds: float) -> Round:
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


def _is_like(span: Span, right: Span) -> bool:
    """Whether a run differs from that with right clocks by no more than the tolerance."""
    goodput = abs(span.goodput_bps / right.goodput_bps - 1)
    return max(goodput, span.resent_fraction - right.resent_fraction) <= TOLERANCE


def _unequal(name: str, *, seed: int, seconds: float, drift_ppm: float | None = None) -> Span:
    """Measure one fabric, whose spines have the delays of `ONE_WAY_MS`; with a wrong clock if there is a drift."""
    one_way_ms = ONE_WAY_MS[name]

    def shape(_leaf: str, spine: str) -> Shape:
        delay_us = one_way_ms[int(spine.removeprefix("spine")) - 1] * 1e3 / 2
        buffer_bytes = RATE_BPS / 8 * max(4 * delay_us / 1e6, RTT_S)
        return buffered(rate_bps=RATE_BPS, delay_us=delay_us, buffer_bytes=buffer_bytes)

    clock = HostClock() if drift_ppm is None else HostClock(offset_s=OFFSET_S, drift_ppm=drift_ppm)
    topology = fabric(spines=len(one_way_ms), name=name.replace("_", "-"), seed=seed, change=shape)
    running = bulk(topology, seed=seed, clocks={} if drift_ppm is None else {RECEIVER: clock})
    return running.span(
        seconds,
        warm_up_s=UNEQUAL_WARM_UP_S,
        steps=len(STEPS_S),
        after_step=lambda step: None if drift_ppm is None else clock.step(STEPS_S[step]),
    )


def long_fat(seed: int, seconds: float) -> Round:
    """One path with a large bandwidth-delay product."""
    topology = long_fat_fabric(seed=seed)
    running = bulk(topology, seed=seed, outstanding=LONG_FAT_OUTSTANDING, config=LONG_FAT_CONFIG)
    goodput_bps = running.span(seconds, warm_up_s=LONG_FAT_WARM_UP_S).goodput_bps
    return Round(
        seed,
        {
            "capacity_fraction": goodput_bps / (LONG_FAT_BPS * PAYLOAD_FRACTION),
            "retransmitted_fraction": running.resent_fraction,
        },
    )


def long_fat_fabric(*, seed: int) -> Topology:
    """Return one spine, with rate, delay and buffer on the way into it."""
    bdp_bytes = LONG_FAT_BPS / 8 * 2 * LONG_FAT_US / 1e6
    shape = buffered(rate_bps=LONG_FAT_BPS, delay_us=LONG_FAT_US, buffer_bytes=bdp_bytes)
    return shaped_upwards(shape, spines=1, name="long-fat", seed=seed)
