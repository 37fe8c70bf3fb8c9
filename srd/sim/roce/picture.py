"""The scenarios as a picture, by Matplotlib: the extra `report`. All transports have published or default settings."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from netns.backends.virtual.lossless.egress_port import EgressPort
from netns.backends.virtual.lossless.profile import LOSSLESS, WatchdogProfile
from netns.topology.model import Topology
from srd.sim.flows import Flow
from srd.sim.models.transports import roce_framing
from srd.sim.roce import scenarios
from srd.sim.roce.fabrics import LINK_BPS, LINK_US
from srd.sim.roce.play import UNSEARCHED, Contender, play, prepare, sample
from srd.sim.simulation import Simulation

COLOURS: Final = {
    "roce": "#d55e00", "dcqcn": "#e69f00", "dcqcn-firmware": "#cc79a7", "irn": "#009e73", "cubic": "#999999",
    "dctcp": "#555555", "srd": "#0072b2",
}  # fmt: skip
FORMULA: Final = "go-back-N: 1 / (1 + P W)"
WATCHED: Final = "RoCE, PFC, watchdog"
DASHES: Final = {FORMULA: "--", WATCHED: ":"}
LOSSES: Final = (0.01, 0.1, 0.2, 0.5, 1.0)
Series = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Panel:
    """One part of the picture: series by contender."""

    title: str
    x: str
    y: str
    series: Mapping[str, Series]
    log_x: bool = False
    steps: bool = False
    own_key: bool = False
    """Its series are not transports, so its key stands beside it, and not below the figure."""


def victim_panel(*, seed: int) -> Panel:
    """The victim's throughput beside the incast."""
    topology, flows, victims = scenarios.victim_parts(seed=seed)
    victim = victims["far"]
    return Panel(
        "A flow that shares no congested link with an incast of 16",
        "ms", "Gbit/s of the victim",
        {name: _throughput(contender, topology, [victim, *flows], seed=seed) for name, contender in UNSEARCHED.items()},
    )  # fmt: skip


def _throughput(contender: Contender, topology: Topology, flows: list[Flow], *, seed: int) -> Series:
    """What reaches the destination of the first flow, in steps of 50 us."""
    stage = prepare(contender, topology, flows, seed=seed)
    host = flows[0].destination
    ends = (topology.switch_of(host), host)
    samples = sample(stage, lambda simulation: {"bytes": simulation.fabric.links[ends].bytes}, every_us=50)
    play(stage, limit_s=0.006)
    return [
        (now[0] / 1000, (now[1]["bytes"] - before[1]["bytes"]) * 8e-3 / (now[0] - before[0]))
        for before, now in pairwise(samples)
    ]


def storm_panel(*, seed: int) -> Panel:
    """How many ports a slow receiver's pauses have stopped, by what they belong to."""
    topology, to_slow, others, card = scenarios.slow_receiver_parts(seed=seed)
    stage = prepare(UNSEARCHED["roce"], topology, [*to_slow, *others], seed=seed, buffers={card: 2_000_000})

    def paused(simulation: Simulation) -> dict[str, float]:
        counts = dict.fromkeys(("leaf to card", "spine to leaf", "leaf to spine", "host to leaf"), 0.0)
        for (near, far), port in simulation.fabric.links.items():
            if isinstance(port, EgressPort) and port.paused >> LOSSLESS & 1:
                kind = "leaf to card" if far == card else f"{_tier(near)} to {_tier(far)}"
                counts[kind] = counts.get(kind, 0) + 1
        return counts

    samples = sample(stage, paused, every_us=25)
    play(stage, limit_s=0.005)
    kinds = samples[0][1]
    return Panel(
        "RoCE, PFC: ports paused because one host takes in 5 Gbit/s", "ms", "ports, mean of 0.2 ms",
        {kind: _smooth([(at / 1000, counts.get(kind, 0)) for at, counts in samples]) for kind in kinds},
        own_key=True,
    )  # fmt: skip


def _tier(node: str) -> str:
    return "host" if node.startswith("h") else node.rstrip("0123456789")


def _smooth(series: Series, width: int = 8) -> Series:
    """Means of so many samples."""
    return [
        (series[at][0], sum(value for _, value in series[at : at + width]) / width)
        for at in range(0, len(series) - width + 1, width)
    ]


def incast_panel(*, seed: int) -> Panel:
    """Completion times of 48 x 2 MB."""
    found = {}
    for name, contender in UNSEARCHED.items():
        times = scenarios.incast_times(contender, senders=48, size_bytes=2_000_000, seed=seed)
        found[name] = _distribution([value / 1000 for value in times])
    return Panel("Incast, 48 x 2 MB: completion times", "ms", "fraction of flows", found, log_x=True, steps=True)


def permutation_panel(*, seed: int) -> Panel:
    """Completion times of a permutation."""
    found = {}
    for name in ("roce", "dcqcn-firmware", "irn", "srd"):
        times = scenarios.permutation_times(UNSEARCHED[name], hosts=128, size_bytes=1_000_000, seed=seed)
        found[name] = _distribution([value / scenarios.ideal_us(1_000_000) for value in times])
    return Panel("Permutation of 128 hosts, 1 MB", "completion time / ideal", "fraction of flows", found, steps=True)


def _distribution(values: list[float]) -> Series:
    return [(value, (rank + 1) / len(values)) for rank, value in enumerate(sorted(values))]


def loss_panel(*, seed: int) -> Panel:
    """Goodput over loss, and what arithmetic says of go-back-N."""
    found = {
        name: [
            (loss, scenarios.loss(contender, percent=loss, seed=seed, size_bytes=50_000_000)["goodput"])
            for loss in LOSSES
        ]
        for name, contender in UNSEARCHED.items()
        if not name.startswith("dcqcn")
    }
    framing = roce_framing(mtu=9000, priority=0)
    packet_us = (framing.payload_bytes + framing.overhead_bytes) * 8e6 / LINK_BPS
    window = (8 * LINK_US + 4 * packet_us) / packet_us
    payload = framing.payload_bytes / (framing.payload_bytes + framing.overhead_bytes)
    found[FORMULA] = [(loss, payload / (1 + loss / 100 * window)) for loss in LOSSES]
    return Panel("One flow over a link with losses", "lost packets, %", "goodput / line rate", found, log_x=True)


def deadlock_panel(*, seed: int) -> Panel:
    """Bytes delivered in the ring, as a fraction."""
    watched = replace(UNSEARCHED["roce"], watchdog=WatchdogProfile())
    runs = {
        "roce": (UNSEARCHED["roce"], 3000.0),
        WATCHED: (watched, 3000.0),
        "irn": (UNSEARCHED["irn"], 50.0),
        "srd": (UNSEARCHED["srd"], 50.0),
    }
    return Panel(
        "Five switches in a ring, host i to i + 2", "ms", "delivered",
        {name: _delivered(contender, every_us=every, seed=seed) for name, (contender, every) in runs.items()},
        log_x=True,
    )  # fmt: skip


def _delivered(contender: Contender, *, every_us: float, seed: int) -> Series:
    topology, flows = scenarios.ring_parts(seed=seed)
    stage = prepare(contender, topology, flows, seed=seed)
    ends = [(topology.switch_of(host), host) for host in topology.hosts]
    samples = sample(
        stage,
        lambda simulation: {"bytes": sum(simulation.fabric.links[each].bytes for each in ends)},
        every_us=every_us,
    )
    play(stage, limit_s=0.6)
    wanted = sum(flow.size_bytes for flow in flows)
    return [(max(at, 50.0) / 1000, min(values["bytes"] / wanted, 1.0)) for at, values in samples]


PANELS: Final[dict[str, Callable[..., Panel]]] = {
    "victim": victim_panel, "slow-host": storm_panel, "incast": incast_panel, "permutation": permutation_panel,
    "loss": loss_panel, "ring-deadlock": deadlock_panel,
}  # fmt: skip
"""By the names of the scenarios (suite.SCENARIOS); of a `seed`."""


def draw(panels: Sequence[Panel]) -> bytes:
    """Return the picture, as PNG; the same panels give the same bytes."""
    columns = min(len(panels), 2)
    rows = -(-len(panels) // columns)
    with mpl.rc_context({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(5.5 * columns, 3.5 * rows + 0.5), layout="constrained")
        keys: dict[str, Artist] = {}
        for index, panel in enumerate(panels):
            axes = figure.add_subplot(rows, columns, index + 1)
            lines = _draw_panel(axes, panel)
            if panel.own_key:
                axes.legend(lines.values(), lines, frameon=False, fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
            else:
                keys |= {label: line for label, line in lines.items() if label not in keys}
        if keys:
            figure.legend(
                keys.values(), keys, loc="outside lower center", ncols=2 * columns + 1, fontsize=8, frameon=False
            )
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
        return buffer.getvalue()


def _draw_panel(axes: Axes, panel: Panel) -> dict[str, Artist]:
    """Draw the series; return their lines by what a key says of them."""
    lines: dict[str, Artist] = {}
    for name, series in panel.series.items():
        label = UNSEARCHED[name].label if name in UNSEARCHED else name
        style: dict[str, Any] = {"color": COLOURS.get(name), "linewidth": 1.8 if name == "srd" else 1.2}
        if name in DASHES:
            style |= {"color": "black", "linestyle": DASHES[name]}
        if panel.steps:
            style["drawstyle"] = "steps-post"
        (lines[label],) = axes.plot([x for x, _ in series], [y for _, y in series], **style)
    if panel.log_x:
        axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_title(panel.title, loc="left")
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    axes.grid(visible=True, alpha=0.3)
    return lines
