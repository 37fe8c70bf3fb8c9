"""Pictures of a report: bytes received over time, one panel for each condition.

Colours are the contestants' own, everywhere; each has a dash pattern of its own besides. In the page's SVG all that is
not a contestant's is drawn in `currentColor`, so that it follows the reader's light or dark theme.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scripts.compare import contestants, figures

_DASHES: Final[dict[str, Any]] = {
    "srd": "-",
    "tcp-cubic": (0, (5, 1.5)),
    "tcp-bbr": (0, (6, 1.5, 1.5, 1.5)),
    "mptcp": (0, (2, 1)),
}
_INK: Final = "#123456"  # a placeholder for currentColor until the SVG is written
_PAPER_INK: Final = "#333333"
_SVG_SETTINGS: Final = {"svg.fonttype": "none", "font.family": "sans-serif", "font.size": 10}
_MIB: Final = 2**20


def progress_svg(report: Mapping[str, Any], condition: str) -> str:
    """Return one condition's panel as an <svg> element for inlining."""
    with mpl.rc_context({**_SVG_SETTINGS, "svg.hashsalt": condition}):  # ids must not collide in one page
        figure = Figure(figsize=(7.6, 3.5), layout="constrained")
        axes = figure.subplots()
        _draw(axes, report, condition, ink=_INK)
        axes.legend(frameon=False, labelcolor=_INK, loc="center left", bbox_to_anchor=(1.0, 0.5))
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].replace(_INK, "currentColor")
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # names of groups that nothing refers to, the same in every plot
    return re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', 'width="100%"', svg, count=1)


def picture_png(report: Mapping[str, Any]) -> bytes:
    """Return all panels side by side as a PNG on a light background, for the README."""
    keys = list(report["conditions"])
    with mpl.rc_context({"font.family": "sans-serif", "font.size": 9.5}):
        figure = Figure(figsize=(3.9 * len(keys), 3.4), layout="constrained", facecolor="white")
        panels = figure.subplots(1, len(keys), squeeze=False)[0]
        for axes, key in zip(panels, keys, strict=True):
            _draw(axes, report, key, ink=_PAPER_INK)
            axes.set_title(_title(report, key), fontsize=10, color=_PAPER_INK)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=130, metadata={"Software": None})
    return buffer.getvalue()


def _title(report: Mapping[str, Any], key: str) -> str:
    return f"{key}: {report['condition_titles'][key]}"


def _draw(axes: Axes, report: Mapping[str, Any], condition: str, *, ink: str) -> None:
    by_key = report["conditions"][condition]
    size_mib = report["file"]["bytes"] / _MIB
    ideal_s = 8 * report["file"]["bytes"] / report["capacity_bps"]
    axes.plot(
        [0, ideal_s],
        [0, size_mib],
        color=ink,
        alpha=0.45,
        linewidth=1,
        label=f"capacity, {figures.gbit(report['capacity_bps'])}",
    )
    for key, figure in by_key.items():
        _draw_line(axes, key, figure)
    axes.set_xlabel("seconds since the first byte")
    axes.set_ylabel("MiB received")
    axes.set_xlim(left=0)
    axes.set_ylim(0, max(size_mib * 1.06, 1e-6))
    axes.grid(visible=True, color=ink, alpha=0.13, linewidth=0.7)
    axes.tick_params(colors=ink, labelcolor=ink)
    axes.xaxis.label.set_color(ink)
    axes.yaxis.label.set_color(ink)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(ink)


def _draw_line(axes: Axes, key: str, figure: Mapping[str, Any]) -> None:
    contestant = contestants.BY_KEY[key]
    times = np.array([seconds for seconds, _ in figure["progress"]])
    mib = np.array([count for _, count in figure["progress"]]) / _MIB
    axes.plot(
        times,
        mib,
        color=contestant.colour,
        linewidth=2.6 if key == "srd" else 1.8,
        linestyle=_DASHES[key],
        label=contestant.label,
        zorder=3 if key == "srd" else 2,
    )
    if figure["blackhole_at_s"] is not None:
        at = figure["blackhole_at_s"]
        axes.plot(
            [at],
            [np.interp(at, times, mib)],
            marker="X",
            markersize=8,
            color=contestant.colour,
            markeredgecolor="white",
            zorder=4,
        )
    if not figure["completed"]:
        axes.plot(
            [times[-1]], [mib[-1]], marker="|", markersize=11, markeredgewidth=2, color=contestant.colour, zorder=4
        )
