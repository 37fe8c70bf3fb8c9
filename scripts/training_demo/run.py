"""A small model is trained by torch's DDP over SRD, then over gloo, on two hosts with four spines between them.

In the middle one spine begins to lose 1 % of its packets; later the link that has carried most dies, silently. The data
and the first parameters are the same, and two ranks' sums do not depend on an order: so the losses are the same to the
last bit, as far as both come. Draws them over time, with the time of each step. A training that stands still is
stopped. gloo is TCP, here with Linux's default congestion control, cubic.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from netns.base.tables import print_table, table
from scripts.harness.errors import BenchError
from scripts.harness.program import program
from scripts.training_demo.jobs import Training, TrainingPlan, train
from scripts.training_demo.plots import draw

BACKENDS: Final = ("srd", "gloo")


@program("demo-training")
@click.option("--steps", default=300, show_default=True, type=click.IntRange(6), help="Steps of each training.")
@click.option("--limit", "limit_s", default=45.0, show_default=True, help="Seconds until a training is stopped.")
@click.option(
    "--output",
    default=Path("out/demo-training.png"),
    show_default=True,
    type=click.Path(path_type=Path),
    help="Picture.",
)
def command(*, steps: int, limit_s: float, output: Path) -> None:
    """Train a model by DDP over SRD and over gloo, on a fabric that fails meanwhile."""
    plan = TrainingPlan(steps, lossy_after=steps // 3, dead_after=2 * steps // 3, limit_s=limit_s)
    # Caches of fonts belong to nobody else.
    os.environ.setdefault("MPLCONFIGDIR", tempfile.gettempdir())
    trainings = []
    for backend in BACKENDS:
        click.echo(f"{backend}: {steps} steps on two hosts, four spines of 250 Mbit/s")
        trainings.append(train(backend, plan, show=click.echo))
    draw(trainings, output)
    _print(trainings)
    click.echo(f"picture: {output}")
    if not same_losses(trainings):
        raise BenchError("the losses differ: a sum was wrong")
    if trainings[0].error:
        raise BenchError(f"the training over SRD did not end: {trainings[0].error}")


def same_losses(trainings: Sequence[Training]) -> bool:
    shortest = min(len(training.losses) for training in trainings)
    return shortest > 0 and len({tuple(training.losses[:shortest]) for training in trainings}) == 1


def _print(trainings: Sequence[Training]) -> None:
    made = table(
        "backend", "steps", "seconds", "median step ms", "longest after a fault ms", "loss", "end", text=["end"]
    )
    for training in trainings:
        steps = sorted(training.step_s)
        made.add_row(
            training.backend,
            f"{len(steps)}",
            f"{training.stopped_at or training.ended_at[-1]:.1f}",
            f"{1e3 * steps[len(steps) // 2]:.1f}",
            f"{1e3 * training.longest_after_fault_s:.0f}",
            f"{training.losses[-1]:.6f}",
            training.error or "done",
        )
    print_table(made)
