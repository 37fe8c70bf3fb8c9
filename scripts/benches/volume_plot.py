#!/usr/bin/env python3
"""scripts/benches/volume_plot.py OUTCOME PICTURE: draw the JSON of `scripts/bench volume --json` as an SVG.

How long reads of 16 KiB took with 1 % loss at each spine, SRD beside TCP: the fraction of the reads in each bin, both
axes logarithmic; the median of the rounds.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from matplotlib.figure import Figure

from scripts.benches.picture import COLOURS, picture_command, styled, svg_of
from scripts.benches.volume.measure import BINS_US, fraction_name


def series_of(outcome: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return the fraction in each bin. Raises ValueError, KeyError or TypeError for another outcome."""
    if outcome["case"] != "volume":
        raise ValueError("of another bench")
    names = [f"lossy_{fraction_name(bound_us)}" for bound_us in BINS_US]
    figures = {"SRD": outcome["ours"], "TCP": outcome["peers"]["tcp"]}
    return {name: [float(of[key]) for key in names] for name, of in figures.items()}


def svg(series: Mapping[str, list[float]]) -> str:
    """Return the picture."""
    with styled():
        figure = Figure(figsize=(7, 3.6), layout="constrained")
        axes = figure.add_subplot()
        for offset, (name, fractions) in zip((-0.2, 0.2), series.items(), strict=True):
            axes.bar([at + offset for at in range(len(BINS_US))], fractions, 0.4, label=name, color=COLOURS[name])
        axes.set_yscale("log")
        axes.set_ylim(1e-4, 1.2)
        axes.set_xticks(range(len(BINS_US)), [f"{bound_us / 1024:g}" for bound_us in BINS_US])
        axes.set_xlabel("at most, in 1.024 ms")
        axes.set_ylabel("fraction of reads")
        axes.set_title("16 KiB reads of a volume, 1 % loss at each of four spines", fontsize=10)
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
        return svg_of(figure)


main = picture_command("volume", series_of=series_of, svg=svg)

if __name__ == "__main__":
    main()
