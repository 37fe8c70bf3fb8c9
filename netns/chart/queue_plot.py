"""One page about a simulated queue: waits, use, fairness, preemptions, traffic, by what was on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from netns.governance.simulate import GovernanceResult

mpl.use("agg")

COLOURS: Final = ("#1f4e79", "#2e9cca", "#b5651d", "#c9a227")
_PAGE_INCHES: Final = (11.0, 7.0)


def plot(results: Sequence[GovernanceResult], path: Path) -> None:
    """Write the page. Raises OSError, or ValueError for a kind of file that matplotlib does not write."""
    figure = Figure(figsize=_PAGE_INCHES, layout="constrained")
    axes = figure.subplots(2, 3)
    _waits(axes[0][0], results)
    bars = (
        (axes[0][1], "Mean wait of each team's jobs (min), sorted", None),
        (axes[0][2], "GPUs in use (%)", [each.utilisation * 100 for each in results]),
        (axes[1][0], "Fairness (Jain's index over teams)", [each.fairness for each in results]),
        (axes[1][1], "Preemptions", [each.preemptions for each in results]),
        (axes[1][2], "Ring neighbours in different racks (%)", [each.cross_rack_fraction * 100 for each in results]),
    )
    for axis, title, values in bars:
        axis.set_title(title, fontsize=10)
        if values is None:
            _teams(axis, results)
        else:
            made = axis.bar([_name(each) for each in results], values, color=COLOURS)
            axis.bar_label(made, fmt="%.3g", fontsize=8)
            axis.margins(y=0.15)
            axis.tick_params(labelsize=8)
    figure.savefig(path, dpi=150)


def _name(result: GovernanceResult) -> str:
    return "\n".join(
        f"{word} {'on' if on else 'off'}" for word, on in (("quota", result.governance), ("topology", result.topology))
    )


def _waits(axis: Axes, results: Sequence[GovernanceResult]) -> None:
    axis.set_title("Jobs that waited longer (%), by minutes", fontsize=10)
    for result, colour in zip(results, COLOURS, strict=False):
        waits = sorted(wait / 60 for wait in result.waits_s)
        longer = [100 * (1 - number / len(waits)) for number in range(len(waits))]
        axis.plot(waits, longer, color=colour, label=_name(result).replace("\n", ", "))
    axis.set_xscale("symlog", linthresh=1)
    axis.legend(fontsize=7)


def _teams(axis: Axes, results: Sequence[GovernanceResult]) -> None:
    for result, colour in zip(results, COLOURS, strict=False):
        means = sorted(sum(waits) / len(waits) / 60 for waits in result.team_waits_s.values())
        axis.plot(range(1, len(means) + 1), means, marker="o", markersize=3, color=colour)
    axis.set_xlabel("team", fontsize=8)
