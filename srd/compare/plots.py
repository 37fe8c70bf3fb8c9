"""Pictures of a comparison. A transport has one colour and one dash pattern everywhere.

In the page's SVG all that is not a transport's is drawn in `currentColor`, so that it follows the reader's light or
dark theme.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from srd.compare.grid import TRANSPORTS, Grid
from srd.compare.outcome import CellOutcome, CellState
from srd.compare.summary import Summary
from srd.compare.traffic import File, Rpc

COLOURS: Final = {"srd": "#0072B2", "cubic": "#E69F00", "bbr": "#009E73", "mptcp": "#CC79A7"}
"""From Okabe and Ito's palette, which colour-blind readers can distinguish."""

CAPACITY: Final = "capacity"
DASHES: Final[Mapping[str, Any]] = {
    "srd": "-",
    "cubic": (0, (5, 1.5)),
    "bbr": (0, (6, 1.5, 1.5, 1.5)),
    "mptcp": (0, (2, 1)),
}
_INK: Final = "#123456"  # a placeholder for currentColor until the SVG is written
_PAPER_INK: Final = "#333333"
_MIB: Final = 2**20
TIME: Final = "time since the start, s"
LONGER: Final = 2.0
"""How many times as long as the longest transfer that was complete a plot over time is at most: of what stands for
longer there is nothing to see, and all else would be squeezed."""
_PANEL_INCHES: Final = (4.1, 3.0)
"""So wide that its text is readable on a page of 390 pixels."""
_WINDOWS: Final = 150
"""Of a plot over time; fewer if they were shorter than MIN_WINDOW_S."""
MIN_WINDOW_S: Final = 0.06
"""Three samples of each receiver: with fewer, a rate is that of the sampling."""

_PROGRESS_CAPTION: Final = (
    "What has arrived over time, and what an empty fabric could carry (thin); ✖ marks what happened to the fabric, "
    "and a bar the end of what was stopped."
)


class Draw(Protocol):
    """Draws the transports of one condition."""

    __name__: str

    def __call__(self, axes: Axes, summaries: Sequence[Summary], *, shown_s: float) -> None:
        """Draw them; `shown_s`: until when, where there is time."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A kind of picture: a panel for each condition."""

    caption: str
    draw: Draw
    over_time: bool = False
    """Its lines are medians over the seeds, within their range."""
    has_capacity: bool = False
    """It shows what an empty fabric could carry."""


def pictures(grid: Grid, workload: str) -> tuple[Picture, Picture]:
    """Return the kinds of pictures of a workload."""
    over_time = Picture(
        "Throughput at the receivers over time; ✖ marks what happened to the fabric.", _throughput, over_time=True
    )
    if isinstance(grid.workloads[workload], Rpc):
        return (
            Picture(
                "Slowdown of messages by size: median (thick) and p99 (thin); a line ends where it is never.", _slowdown
            ),
            Picture("Slowdown of all messages; what is missing at the top was never complete.", _slowdown_cdf),
        )
    if isinstance(grid.workloads[workload], File):
        return Picture(_PROGRESS_CAPTION, _progress, over_time=True, has_capacity=True), over_time
    return over_time, Picture("Completion times of flows; what is missing at the top was never complete.", _seconds_cdf)


def panel_svgs(summaries: Sequence[Summary], draw: Draw, *, conditions: Sequence[str]) -> list[str]:
    """Return a panel for each condition, each an <svg> element for inlining; all have the same axes."""
    first = summaries[0].point
    figures, row = [], []
    with mpl.rc_context({"font.family": "sans-serif", "font.size": 10}):
        for _ in conditions:
            figure = Figure(figsize=_PANEL_INCHES, layout="constrained")
            figures.append(figure)
            row.append(figure.subplots())
        _draw_row(row, summaries, draw, conditions=conditions, ink=_INK)
    return [
        _svg(figure, salt=f"{first.fabric} {first.workload} {draw.__name__} {condition}")  # ids of a page are unique
        for figure, condition in zip(figures, conditions, strict=True)
    ]


def _svg(figure: Figure, *, salt: str) -> str:
    with mpl.rc_context({"svg.fonttype": "none", "font.family": "sans-serif", "font.size": 10, "svg.hashsalt": salt}):
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
            draw = pictures(grid, workload)[0].draw
            if len(rows) > 1:
                title = workload if len(grid.fabrics) == 1 else f"{workload} on {fabric}"
                part.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold", color=_PAPER_INK)
            row = part.subplots(1, len(conditions), squeeze=False)[0]
            _draw_row(row, own, draw, conditions=conditions, ink=_PAPER_INK)
            _legend(part, row)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=130, metadata={"Software": None})
    return buffer.getvalue()


def _draw_row(
    row: Sequence[Axes], summaries: Sequence[Summary], draw: Draw, *, conditions: Sequence[str], ink: str
) -> None:
    """Draw a panel for each condition, all with the same axes."""
    shown_s = _shown_s([outcome for summary in summaries for outcome in summary.seeds])
    titles = []
    for axes, condition in zip(row, conditions, strict=True):
        own = [summary for summary in summaries if summary.point.condition == condition]
        axes.xaxis.label.set_color(ink)  # which a panel draws in what is no transport's
        draw(axes, own, shown_s=shown_s)
        remarks = [f"{TRANSPORTS[summary.point.transport]}: n/a" for summary in own if not summary.measured]
        if axes.get_xlabel() == TIME:
            remarks += _beyond(own, shown_s=shown_s)
        titles.append((condition, ", ".join(remarks)))
        _style(axes, ink=ink)
    has_remarks = any(remark for _, remark in titles)  # then all have a second line, so that panels are equally high
    for axes, (condition, remark) in zip(row, titles, strict=True):
        axes.set_title(f"{condition}\n{remark or ' '}" if has_remarks else condition, fontsize=10, color=ink)
    for get, set_limits in ((Axes.get_xlim, Axes.set_xlim), (Axes.get_ylim, Axes.set_ylim)):
        low, high = zip(*(get(axes) for axes in row), strict=True)
        for axes in row:
            set_limits(axes, (min(low), max(high)))


def _shown_s(outcomes: Sequence[CellOutcome]) -> float:
    """Return how long plots over time are, all of them: the longest measurement, or LONGER than what was complete."""
    complete = [outcome.elapsed_s for outcome in outcomes if outcome.state is CellState.OK]
    events = [at_s for outcome in outcomes for at_s, _ in outcome.events]
    longest = max((outcome.elapsed_s for outcome in outcomes), default=0.0)
    return (min(longest, LONGER * max(complete + events)) if complete else longest) or 1.0


def _beyond(summaries: Sequence[Summary], *, shown_s: float) -> list[str]:
    """Return what goes on after the end of a plot over time."""
    ends = [(summary, max((outcome.elapsed_s for outcome in summary.seeds), default=0.0)) for summary in summaries]
    return [f"{TRANSPORTS[each.point.transport]}: until {end_s:.3g} s" for each, end_s in ends if end_s > shown_s]


def _legend(figure: Any, row: Sequence[Axes]) -> None:
    handles: dict[str, Any] = {}
    for axes in row:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(
        handles.values(), handles.keys(), loc="outside upper center", ncols=5, frameon=False, labelcolor=_PAPER_INK
    )


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
        linestyle=DASHES[transport],
        linewidth=0.9 if thin else 2.2 if transport == "srd" else 1.6,
        label=None if thin else TRANSPORTS[transport],
        zorder=3 if transport == "srd" else 2,
        **options,
    )


def _throughput(axes: Axes, summaries: Sequence[Summary], *, shown_s: float) -> None:
    window_s = max(MIN_WINDOW_S, shown_s / _WINDOWS)
    for summary in (summary for summary in summaries if summary.measured):
        transport = summary.point.transport
        times, rates = throughput(summary.seeds, window_s=window_s)
        mbit = _median_and_range(axes, transport, times, np.array(rates))
        _mark_events(axes, summary.typical, transport, times, mbit)
    axes.set_xlabel(TIME)
    axes.set_ylabel("received, Mbit/s")
    axes.set_xlim(0, shown_s)
    axes.set_ylim(bottom=0)


def _progress(axes: Axes, summaries: Sequence[Summary], *, shown_s: float) -> None:
    """Draw what had arrived, and what an empty fabric could carry."""
    known = [summary for summary in summaries if summary.measured]
    for flow in (flow for summary in known[:1] for flow in summary.flows[:1] if flow.ideal_s):
        ink = axes.xaxis.label.get_color()
        axes.plot([0, flow.ideal_s], [0, flow.size_bytes / _MIB], color=ink, alpha=0.45, linewidth=1, label=CAPACITY)
    for summary in known:
        transport = summary.point.transport
        ends = [outcome.elapsed_s for outcome in summary.seeds]  # of what was stopped: when
        times = sorted({*ends, *(seconds for outcome in summary.seeds for seconds, _ in outcome.progress)})
        mib = np.array([_arrived(outcome, times) for outcome in summary.seeds]) / _MIB
        shown = _median_and_range(axes, transport, times, mib)
        _mark_events(axes, summary.typical, transport, times, shown)
        if summary.typical.state is not CellState.OK:
            axes.plot(
                times[-1:], shown[-1:], marker="|", markersize=11, markeredgewidth=2, color=COLOURS[transport], zorder=4
            )
    axes.set_xlabel(TIME)
    axes.set_ylabel("received, MiB")
    axes.set_xlim(0, shown_s)
    axes.set_ylim(bottom=0)


def _median_and_range(axes: Axes, transport: str, times: Sequence[float], seeds: Any) -> list[float]:
    """Draw the median of the seeds, and from the least to the most if there are several; return the median."""
    median = [float(value) for value in np.median(seeds, axis=0)]
    _line(axes, transport, times, median)
    if len(seeds) > 1:
        axes.fill_between(
            times, seeds.min(axis=0), seeds.max(axis=0), color=COLOURS[transport], alpha=0.18, linewidth=0
        )
    return median


def _mark_events(
    axes: Axes, outcome: CellOutcome, transport: str, times: Sequence[float], levels: Sequence[float]
) -> None:
    """Mark what happened to the fabric on a transport's line."""
    for at_s, _ in outcome.events:
        level = float(np.interp(at_s, times, levels)) if len(times) else 0.0
        colour = COLOURS[transport]
        axes.plot([at_s], [level], marker="X", markersize=8, color=colour, markeredgecolor="white", zorder=4)


def _end_s(outcome: CellOutcome) -> float:
    """Return until when there is something to draw: all had arrived, or the end."""
    times = [seconds for seconds, _ in outcome.progress]
    return times[-1] if times and outcome.state is CellState.OK else outcome.elapsed_s


def throughput(seeds: Sequence[CellOutcome], *, window_s: float) -> tuple[list[float], list[list[float]]]:
    """Return middles (s) and each seed's rates (Mbit/s) of windows of at least this length.

    Until all had arrived, or the end, of the seed that took longest.
    """
    end_s = max(map(_end_s, seeds))
    if end_s <= 0 or not any(outcome.progress for outcome in seeds):
        return [], [[] for _ in seeds]
    edges = np.linspace(0, end_s, max(1, int(end_s / window_s)) + 1)
    rates = [8e-6 * np.diff(_arrived(outcome, edges)) / np.diff(edges) for outcome in seeds]
    return [float(each) for each in (edges[:-1] + edges[1:]) / 2], [[float(rate) for rate in each] for each in rates]


def _arrived(outcome: CellOutcome, times: Any) -> Any:
    """Return the bytes that had arrived at these times."""
    known = outcome.progress or ((0.0, 0),)
    return np.interp(times, [seconds for seconds, _ in known], [size_bytes for _, size_bytes in known])


def _seconds_cdf(axes: Axes, summaries: Sequence[Summary], *, shown_s: float) -> None:  # noqa: ARG001 - no time
    for summary in summaries:
        _cdf(axes, summary.point.transport, [flow.seconds for flow in summary.flows])
    axes.set_xlim(left=0)
    axes.set_xlabel("completion time, s")


def _slowdown_cdf(axes: Axes, summaries: Sequence[Summary], *, shown_s: float) -> None:  # noqa: ARG001 - no time
    for summary in summaries:
        _cdf(axes, summary.point.transport, [flow.slowdown for flow in summary.flows])
    axes.set_xscale("log")
    _write_plainly(axes.xaxis)
    axes.set_xlabel("slowdown, times the ideal")


def _cdf(axes: Axes, transport: str, values: Sequence[float | None]) -> None:
    """Draw which share of the flows is complete by when, of all flows."""
    known = sorted(value for value in values if value is not None)
    if known:
        shares = 100 * np.arange(1, len(known) + 1) / len(values)
        _line(axes, transport, [known[0], *known], [0.0, *shares], drawstyle="steps-post")
    axes.set_ylim(0, 102)
    axes.set_ylabel("share of flows, %")


def _slowdown(axes: Axes, summaries: Sequence[Summary], *, shown_s: float) -> None:  # noqa: ARG001 - no time
    for summary in summaries:
        transport = summary.point.transport
        sizes = [each.most_bytes / 1024 for each in summary.bins]
        _line(axes, transport, sizes, [_or_nan(each.p50) for each in summary.bins], marker="o", markersize=3)
        _line(axes, transport, sizes, [_or_nan(each.p99) for each in summary.bins], thin=True)
    axes.set_xscale("log")
    axes.set_yscale("log")
    _write_plainly(axes.xaxis, axes.yaxis)
    axes.set_xlabel("size of the message, KiB")
    axes.set_ylabel("slowdown, times the ideal")


def _write_plainly(*scales: Axis) -> None:
    """Write 10 and 0.1 at powers of ten, and nothing between."""
    for scale in scales:
        scale.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        scale.set_minor_formatter(NullFormatter())


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value
