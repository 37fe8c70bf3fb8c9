"""The picture of the demonstration: losses over time, and how long each step took."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.figure import Figure

from scripts.training_demo.jobs import Training
from srd.compare.plots import COLOURS

_STYLES: Final = {"srd": (COLOURS["srd"], "-"), "gloo": (COLOURS["cubic"], (0, (5, 1.5)))}


def draw(trainings: Sequence[Training], path: Path) -> None:
    """Draw both curves of each training; a fault is a thin line in its colour, and a cross where it was stopped."""
    mpl.use("Agg")
    figure = Figure(figsize=(9, 6), layout="constrained")
    loss, steps = figure.subplots(2, 1, sharex=True)
    for training in trainings:
        colour, dashes = _STYLES[training.backend]
        loss.plot(training.ended_at, training.losses, color=colour, linestyle=dashes, label=training.backend)
        milliseconds = [1e3 * seconds for seconds in training.step_s]
        steps.plot(training.ended_at, milliseconds, color=colour, marker=".", markersize=3, linestyle="none")
        if training.error:
            at, stopped = training.ended_at[-1], training.stopped_at
            for axes, height in ((loss, training.losses[-1]), (steps, 1e3 * training.longest_after_fault_s)):
                axes.plot([at, stopped], [height, height], color=colour, linestyle=":")
                axes.plot([stopped], [height], color=colour, marker="x", markersize=9)
        for at, _ in training.faults:
            for axes in (loss, steps):
                axes.axvline(at, color=colour, linestyle=dashes, linewidth=0.7, alpha=0.6)
    loss.set_ylabel("loss")
    loss.legend(title="backend of torch.distributed")
    steps.set_ylabel("a step, ms")
    steps.set_yscale("log")
    steps.set_xlabel("seconds; thin lines: one spine loses 1 %, then the busiest link dies; a cross: it was stopped")
    for axes in (loss, steps):
        axes.grid(visible=True, alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
