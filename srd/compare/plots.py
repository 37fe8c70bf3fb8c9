"""Pictures of a comparison. A transport has one colour and one dash pattern everywhere.

In the page's SVG all that is not a transport's is drawn in `currentColor`, so that it follows the reader's light or
dark theme.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from srd.compare.grid import TRANSPORTS, Grid
from srd.compare.outcome import CellOutcome, State
from srd.compare.summary import Summary
from srd.compare.traffic import File, Rpc

COLOURS: Final = {"srd": "#0072B2", "cubic": "#E69F00", "bbr": "#009E73", "mptcp": "#CC79A7"}
"""From Okabe and Ito's palette, which colour-blind readers can distinguish."""

_DASHES: Final[Mapping[str, Any]] = {
    "srd": "-",
    "cubic": (0, (5, 1.5)),
    "bbr": (0, (6, 1.5, 1.5, 1.5)),
    "mptcp": (0, (2, 1)),
}
_INK: Final = "#123456"  # a placeholder for currentColor until the SVG is written
_PAPER_INK: Final = "#333333"
_MIB: Final = 2**20
_WINDOWS: Final = 50
"""Of a plot over time; fewer if they were shorter than MIN_WINDOW_S."""
MIN_WINDOW_S: Final = 0.06
"""Three samples of each receiver: with fewer, a rate is that of the sampling."""

_PROGRESS_CAPTION: Final = (
    "What has arrived over time, and what an empty fabric could carry (thin); ✖ marks what happened to the fabric, "
    "and a bar the end of what was stopped."
)
_THROUGHPUT_CAPTION: Final = "Throughput at the receivers over time; ✖ marks what happened to the fabric."
Draw = Callable[[Axes, Sequence[Summary]], None]
"""Draws the transports of one condition."""


def panels(grid: Grid, workload: str) -> dict[str, tuple[str, Draw]]:
    """Return the kinds of pictures of a workload: name -> caption and what draws a panel."""
    if isinstance(grid.workloads[workload], Rpc):
        return {
            "slowdown": (
                "Slowdown of messages by size: median (thick) and p99 (thin); a line ends where it is never.",
                _slowdown,
            ),
            "cdf": ("Slowdown of all messages; what is missing at the top was never complete.", _slowdown_cdf),
        }
    if isinstance(grid.workloads[workload], File):
        return {"progress": (_PROGRESS_CAPTION, _progress), "throughput": (_THROUGHPUT_CAPTION, _throughput)}
    return {
        "throughput": (_THROUGHPUT_CAPTION, _throughput),
        "cdf": ("Completion times of flows; what is missing at the top was never complete.", _seconds_cdf),
    }


def panel_svg(summaries: Sequence[Summary], draw: Draw, *, conditions: Sequence[str]) -> str:
    """Return one row of panels, one for each condition, as an <svg> element for inlining."""
    first = summaries[0].point
    salt = f"{first.fabric} {first.workload} {draw.__name__}"  # ids must not collide in one page
    with mpl.rc_context({"svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9.5, "svg.hashsalt": salt}):
        figure = Figure(figsize=(max(7.6, 3.1 * len(conditions)), 3.0), layout="constrained")
        _row(figure, summaries, draw, conditions=conditions, ink=_INK)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].replace(_INK, "currentColor")
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # names of groups that nothing refers to, the same in every plot
    return re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', 'width="100%"', svg, count=1)


def picture_png(grid: Grid, summaries: Sequence[Summary]) -> bytes:
    """Return all rows as a PNG on a light background: one for each fabric and workload, the first kind of picture."""
    rows = [(fabric, workload) for fabric in grid.fabrics for workload in grid.workloads]
    conditions = list(grid.conditions)
    with mpl.rc_context({"font.family": "sans-serif", "font.size": 9.5}):
        size = (max(7.0, 3.6 * len(conditions)), 3.0 * len(rows) + 0.4)
        figure = Figure(figsize=size, layout="constrained", facecolor="white")
        parts = figure.subfigures(len(rows), 1, squeeze=False)[:, 0]
        for part, (fabric, workload) in zip(parts, rows, strict=True):
            own = [each for each in summaries if (each.point.fabric, each.point.workload) == (fabric, workload)]
            _, draw = next(iter(panels(grid, workload).values()))
            if len(rows) > 1:
                title = workload if len(grid.fabrics) == 1 else f"{workload} on {fabric}"
                part.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold", color=_PAPER_INK)
            _row(part, own, draw, conditions=conditions, ink=_PAPER_INK)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=130, metadata={"Software": None})
    return buffer.getvalue()


def _row(figure: Any, summaries: Sequence[Summary], draw: Draw, *, conditions: Sequence[str], ink: str) -> None:
    """Draw a panel for each condition, and one legend."""
    axes_row = figure.subplots(1, len(conditions), squeeze=False, sharey=True)[0]
    for axes, condition in zip(axes_row, conditions, strict=True):
        own = [summary for summary in summaries if summary.point.condition == condition]
        axes.xaxis.label.set_color(ink)  # which a panel draws in what is no transport's
        draw(axes, own)
        axes.set_title(condition, fontsize=10, color=ink)
        _style(axes, ink=ink)
        missing = [summary for summary in own if not summary.measured]
        for index, summary in enumerate(missing):
            text = f"{TRANSPORTS[summary.point.transport]}: n/a"
            axes.text(0.98, 0.97 - 0.08 * index, text, transform=axes.transAxes, ha="right", va="top", color=ink)
    for axes in axes_row[1:]:
        axes.set_ylabel("")
    handles: dict[str, Any] = {}
    for axes in axes_row:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=5, frameon=False, labelcolor=ink)


def _style(axes: Axes, *, ink: str) -> None:
    axes.grid(visible=True, color=ink, alpha=0.13, linewidth=0.7)
    axes.tick_params(which="both", colors=ink, labelcolor=ink)
    axes.xaxis.label.set_color(ink)
    axes.yaxis.label.set_color(ink)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(ink)


def _line(axes: Axes, transport: str, x: Any, y: Any, *, thin: bool = False, **options: Any) -> None:
    axes.plot(
        x,
        y,
        color=COLOURS[transport],
        linestyle=_DASHES[transport],
        linewidth=0.9 if thin else 2.2 if transport == "srd" else 1.6,
        label=None if thin else TRANSPORTS[transport],
        zorder=3 if transport == "srd" else 2,
        **options,
    )


def _throughput(axes: Axes, summaries: Sequence[Summary]) -> None:
    known = [summary for summary in summaries if summary.measured]
    shown_s = _shown_s([summary.typical for summary in known])
    for summary in known:
        outcome, transport = summary.typical, summary.point.transport
        times, mbit = throughput(outcome, window_s=max(MIN_WINDOW_S, shown_s / _WINDOWS))
        _line(axes, transport, times, mbit)
        _mark_events(axes, outcome, transport, times, mbit, shown_s=shown_s)
    axes.set_xlabel("seconds")
    axes.set_ylabel("Mbit/s received")
    axes.set_xlim(0, shown_s)
    axes.set_ylim(bottom=0)


def _progress(axes: Axes, summaries: Sequence[Summary]) -> None:
    known = [summary for summary in summaries if summary.measured]
    shown_s = _shown_s([summary.typical for summary in known])
    for flow in (flow for summary in known[:1] for flow in summary.flows[:1] if flow.ideal_s):
        size_mib = flow.size_bytes / _MIB
        ink = axes.xaxis.label.get_color()
        axes.plot([0, flow.ideal_s], [0, size_mib], color=ink, alpha=0.45, linewidth=1, label="capacity")
    for summary in known:
        outcome, transport = summary.typical, summary.point.transport
        times = [seconds for seconds, _ in outcome.progress]
        mib = [size_bytes / _MIB for _, size_bytes in outcome.progress]
        _line(axes, transport, times, mib)
        _mark_events(axes, outcome, transport, times, mib, shown_s=shown_s)
        if outcome.state is not State.OK and times and times[-1] <= shown_s:
            axes.plot(
                times[-1:], mib[-1:], marker="|", markersize=11, markeredgewidth=2, color=COLOURS[transport], zorder=4
            )
    axes.set_xlabel("seconds since the start")
    axes.set_ylabel("MiB received")
    axes.set_xlim(0, shown_s)
    axes.set_ylim(bottom=0)


def _mark_events(
    axes: Axes, outcome: CellOutcome, transport: str, times: Sequence[float], levels: Sequence[float], *, shown_s: float
) -> None:
    """Mark what happened to the fabric on a transport's line."""
    for at_s, _ in outcome.events:
        if at_s <= shown_s:
            level = float(np.interp(at_s, times, levels)) if len(times) else 0.0
            colour = COLOURS[transport]
            axes.plot([at_s], [level], marker="X", markersize=8, color=colour, markeredgecolor="white", zorder=4)


def throughput(outcome: CellOutcome, *, window_s: float) -> tuple[list[float], list[float]]:
    """Return middle (s) and rate (Mbit/s) of windows of at least this length, until all had arrived, or the end."""
    times = [seconds for seconds, _ in outcome.progress]
    end_s = times[-1] if times and outcome.state is State.OK else outcome.elapsed_s
    if not times or end_s <= 0:
        return [], []
    edges = np.linspace(0, end_s, max(1, int(end_s / window_s)) + 1)
    arrived = np.interp(edges, times, [size_bytes for _, size_bytes in outcome.progress])
    rates = 8e-6 * np.diff(arrived) / np.diff(edges)
    return [float(each) for each in (edges[:-1] + edges[1:]) / 2], [float(rate) for rate in rates]


def _shown_s(outcomes: Sequence[CellOutcome]) -> float:
    """Return how long a plot over time is: until the last end or event, and a quarter; all of it if nothing is ok."""
    ok = [outcome.elapsed_s for outcome in outcomes if outcome.state is State.OK]
    events = [at_s for outcome in outcomes for at_s, _ in outcome.events]
    longest = max((outcome.elapsed_s for outcome in outcomes), default=1.0)
    return max(1e-3, min(1.25 * max(ok + events), longest) if ok else longest)


def _seconds_cdf(axes: Axes, summaries: Sequence[Summary]) -> None:
    for summary in summaries:
        _cdf(axes, summary.point.transport, [flow.seconds for flow in summary.flows])
    axes.set_xlim(left=0)
    axes.set_xlabel("completion time, s")


def _slowdown_cdf(axes: Axes, summaries: Sequence[Summary]) -> None:
    for summary in summaries:
        _cdf(axes, summary.point.transport, [flow.slowdown for flow in summary.flows])
    axes.set_xscale("log")
    _write_plainly(axes.xaxis)
    axes.set_xlabel("slowdown")


def _cdf(axes: Axes, transport: str, values: Sequence[float | None]) -> None:
    """Draw which share of the flows is complete by when, of all flows."""
    known = sorted(value for value in values if value is not None)
    if known:
        shares = np.arange(1, len(known) + 1) / len(values)
        _line(axes, transport, [known[0], *known], [0.0, *shares], drawstyle="steps-post")
    axes.set_ylim(0, 1.02)
    axes.set_ylabel("share of flows")


def _slowdown(axes: Axes, summaries: Sequence[Summary]) -> None:
    for summary in summaries:
        transport = summary.point.transport
        sizes = [each.most_bytes / 1024 for each in summary.bins]
        _line(axes, transport, sizes, [_or_nan(each.p50) for each in summary.bins], marker="o", markersize=3)
        _line(axes, transport, sizes, [_or_nan(each.p99) for each in summary.bins], thin=True)
    axes.set_xscale("log")
    axes.set_yscale("log")
    _write_plainly(axes.xaxis, axes.yaxis)
    axes.set_xlabel("message, KiB")
    axes.set_ylabel("slowdown")


def _write_plainly(*scales: Axis) -> None:
    """Write 10 and 0.1 at powers of ten, and nothing between."""
    for scale in scales:
        scale.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        scale.set_minor_formatter(NullFormatter())


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value
