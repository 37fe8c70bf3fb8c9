#!/usr/bin/env python3
"""scripts/benches/picture.py OUTCOME PICTURE: draw the JSON of `scripts/bench sizes --json` or `volume` as an SVG.

Of `sizes`: round trip over message size, both axes logarithmic; the median of the rounds, and as a band the smallest
and the largest. Of `volume`: how long reads of 16 KiB took with 1 % loss at each spine, the fraction of the reads in
each bin; the median of the rounds. SRD beside kernel TCP.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import click
import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scripts.benches.cases.latency import name_of
from scripts.benches.cases.sizes import SIZES
from scripts.benches.volume.measure import BINS_US, fraction_name

COLOURS: Final = {"SRD": "#0072b2", "TCP": "#d55e00"}
LABELLED_SIZES: Final = SIZES[::2]
Outcome = Mapping[str, Any]


def _sizes(outcome: Outcome, axes: Axes) -> None:
    rounds = outcome["rounds"]
    for name, of in (
        ("SRD", [each["ours"] for each in rounds]),
        ("TCP", [each["peers"]["tcp"] for each in rounds]),
    ):
        values = [sorted(float(figures[f"p50_{name_of(size)}_us"]) for figures in of) for size in SIZES]
        medians = [each[len(each) // 2] for each in values]
        axes.plot(SIZES, medians, marker="o", markersize=4, color=COLOURS[name], label=name)
        lowest, highest = [each[0] for each in values], [each[-1] for each in values]
        axes.fill_between(SIZES, lowest, highest, color=COLOURS[name], alpha=0.15, linewidth=0)
    axes.set_xscale("log", base=2)
    axes.set_xticks(LABELLED_SIZES, [_label(size) for size in LABELLED_SIZES])
    axes.set_xlabel("message size")
    axes.set_ylabel("round trip, p50, us")
    axes.grid(visible=True, which="both", alpha=0.2, linewidth=0.6)


def _label(size: int) -> str:
    for shift, unit in ((20, "MiB"), (10, "KiB")):
        if size >= 1 << shift:
            return f"{size >> shift} {unit}"
    return f"{size} B"


def _volume(outcome: Outcome, axes: Axes) -> None:
    for offset, name, figures in ((-0.2, "SRD", outcome["ours"]), (0.2, "TCP", outcome["peers"]["tcp"])):
        fractions = [float(figures[f"lossy_{fraction_name(bound_us)}"]) for bound_us in BINS_US]
        axes.bar([at + offset for at in range(len(BINS_US))], fractions, 0.4, label=name, color=COLOURS[name])
    axes.set_ylim(1e-4, 1.2)
    axes.set_xticks(range(len(BINS_US)), [f"{bound_us / 1024:g}" for bound_us in BINS_US])
    axes.set_xlabel("at most, in 1.024 ms")
    axes.set_ylabel("fraction of reads")
    axes.set_title("16 KiB reads of a volume, 1 % loss at each of four spines", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)


PICTURES: Final[dict[str, tuple[Callable[[Outcome, Axes], None], tuple[float, float]]]] = {
    "sizes": (_sizes, (7.6, 4.2)),
    "volume": (_volume, (7.0, 3.6)),
}
"""What draws the outcome of a bench, and how large the picture is in inches."""


@click.command()
@click.argument("outcome", type=click.File())
@click.argument("picture", type=click.Path(dir_okay=False, path_type=Path))
def main(outcome: Any, picture: Path) -> None:
    """Draw OUTCOME, the JSON of `scripts/bench sizes --json` or `volume` (-: stdin), into the file PICTURE."""
    with mpl.rc_context(  # a figure is the same SVG each time
        {"svg.fonttype": "none", "svg.hashsalt": "open-srd", "font.family": "sans-serif", "font.size": 10}
    ):
        try:
            found = json.load(outcome)
            draw, inches = PICTURES[found["case"]]
            figure = Figure(figsize=inches, layout="constrained", facecolor="white")
            axes = figure.subplots()
            axes.set_yscale("log")
            draw(found, axes)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise click.ClickException(f"{outcome.name}: not the JSON of one of these benches ({error!r})") from None
        axes.legend(frameon=False)
        try:
            figure.savefig(picture, format="svg", metadata={"Date": None, "Creator": None})
        except OSError as error:
            raise click.ClickException(f"{picture}: {error.strerror}") from None


if __name__ == "__main__":
    main()
