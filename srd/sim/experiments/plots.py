"""Pictures of experiments, by Matplotlib: the extra `report`."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from srd.sim.experiments.experiment import Experiment, ExperimentResult
from srd.sim.experiments.figures import BUSIEST

COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
"""Okabe and Ito's palette, which colour-blind readers can distinguish."""
_STYLE: Final[Any] = {"font.size": 9.5, "axes.grid": True, "grid.alpha": 0.2, "svg.hashsalt": "srd"}


def picture(experiment: Experiment, result: ExperimentResult, *, title: str) -> bytes:
    """Return the picture of a result as a PNG: slowdowns, rates and waits of the busiest links."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(12, 3.6), layout="constrained", facecolor="white")
        slowdowns, rates, waits = figure.subplots(1, 3)
        figure.suptitle(title, fontsize=11, parse_math=False)
        draw_cdf(slowdowns, {experiment.transport: [each.slowdown for each in result.completions]})
        slowdowns.set_xlabel("slowdown")
        names = sorted(result.series, key=lambda name: (-sum(result.series[name].sent_bytes), name))[:BUSIEST]
        for colour, name in zip(COLOURS, names, strict=False):
            series = result.series[name]
            at_us = np.arange(1, len(series.sent_bytes) + 1) * result.step_us
            gbps = np.array(series.sent_bytes) * 8e-3 / result.step_us
            rates.plot(at_us, gbps, color=colour, linewidth=1, label=name)
            waits.plot(at_us, np.array(series.wait_ns) / 1000, color=colour, linewidth=1)
        rates.set_ylabel("Gbit/s, the busiest links")
        waits.set_ylabel("wait for the wire, us")
        for axes in (rates, waits):
            axes.set_xlabel("time, us")
            axes.set_ylim(bottom=0)
        _key(figure, rates)
        return png(figure)


def scene(slowdowns: Mapping[str, Sequence[float | None]], *, title: str) -> bytes:
    """Return the slowdowns of what is compared in one scene as a PNG, from none to all flows, and the slowest."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(10, 3.6), layout="constrained", facecolor="white")
        most, slowest = figure.subplots(1, 2)
        figure.suptitle(title, fontsize=11, parse_math=False)
        for axes in (most, slowest):
            draw_cdf(axes, slowdowns)
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set_xlabel("slowdown")
        slowest.set_ylim(0.9, 1.002)
        _key(figure, most)
        return png(figure)


def _key(figure: Figure, axes: Axes) -> None:
    """Say below the figure which line is which, where no data is."""
    lines, names = axes.get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=min(len(names), 8), fontsize=8, frameon=False)


def draw_cdf(axes: Axes, values: Mapping[str, Sequence[float | None]]) -> None:
    """Draw which share of flows has at most which value, of all flows; one line for each key."""
    for index, (name, each) in enumerate(values.items()):
        known = sorted(value for value in each if value is not None)
        shares = np.arange(1, len(known) + 1) / max(len(each), 1)
        axes.step([*known[:1], *known], [0.0, *shares] if known else [], where="post", color=_colour(index), label=name)
    axes.set_ylim(0, 1.02)
    axes.set_ylabel("share of flows")


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def png(figure: Figure) -> bytes:
    """Return a figure as a PNG without dates and versions, so that the same figure is the same file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    return buffer.getvalue()
