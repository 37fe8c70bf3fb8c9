#!/usr/bin/env python3
"""scripts/benches/sizes_plot.py OUTCOME PICTURE: draw the JSON of `scripts/bench sizes --json` as an SVG.

Round trip over message size, SRD and kernel TCP, both axes logarithmic; the median of the rounds, and as a band the
smallest and the largest.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scripts.benches.cases.latency import name_of
from scripts.benches.cases.sizes import SIZES
from scripts.benches.picture import COLOURS, picture_command, styled, svg_of

LABELLED_SIZES: Final = SIZES[::2]


def series_of(outcome: Mapping[str, Any]) -> dict[str, list[list[float]]]:
    """Return the p50 of each contestant: for each size those of all rounds, in microseconds.

    Raises ValueError, KeyError or TypeError for anything but the outcome of that bench.
    """
    if outcome["case"] != "sizes" or not outcome["rounds"]:
        raise ValueError("of another bench, or without rounds")
    keys = [f"p50_{name_of(size)}_us" for size in SIZES]
    ours = [round_["ours"] for round_ in outcome["rounds"]]
    tcp = [round_["peers"]["tcp"] for round_ in outcome["rounds"]]
    return {
        name: [[float(figures[key]) for figures in of] for key in keys] for name, of in (("SRD", ours), ("TCP", tcp))
    }


def svg(series: Mapping[str, Sequence[Sequence[float]]]) -> str:
    """Return the picture."""
    with styled():
        figure = Figure(figsize=(7.6, 4.2), layout="constrained", facecolor="white")
        axes = figure.subplots()
        for name, rounds in series.items():
            _draw(axes, name, rounds)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(LABELLED_SIZES, [_label(size) for size in LABELLED_SIZES])
        axes.set_xlabel("message size")
        axes.set_ylabel("round trip, p50, us")
        axes.grid(visible=True, which="both", alpha=0.2, linewidth=0.6)
        axes.legend(frameon=False)
        return svg_of(figure)


def _draw(axes: Axes, name: str, rounds: Sequence[Sequence[float]]) -> None:
    medians = [sorted(values)[len(values) // 2] for values in rounds]
    axes.plot(SIZES, medians, marker="o", markersize=4, color=COLOURS[name], label=name)
    lowest, highest = [min(values) for values in rounds], [max(values) for values in rounds]
    axes.fill_between(SIZES, lowest, highest, color=COLOURS[name], alpha=0.15, linewidth=0)


def _label(size: int) -> str:
    for shift, unit in ((20, "MiB"), (10, "KiB")):
        if size >= 1 << shift:
            return f"{size >> shift} {unit}"
    return f"{size} B"


main = picture_command("sizes", series_of=series_of, svg=svg)

if __name__ == "__main__":
    main()
