"""`srd-lab queue sim`: a trace of jobs on a large cluster in virtual time, by topology awareness and governance."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import click

from netns.base.options import json_option
from netns.base.output import print_json
from netns.base.percentile import percentile
from netns.base.tables import print_table, table
from netns.errors import LabError
from netns.governance.simulate import NODE_GPUS, GovernanceResult, GovernanceSimulation
from netns.governance.trace import SHAPES, TraceJob, generated, read_trace

RUNS: Final = ((True, True), (True, False), (False, True), (False, False))
"""Governance, topology."""


@click.command()
@click.argument("trace", metavar="TRACE")
@click.option(
    "--jobs", type=click.IntRange(1, 1_000_000), default=10_000, show_default=True, help="Of a generated trace."
)
@click.option("--nodes", type=click.IntRange(1, 100_000), default=2500, show_default=True, help="With 8 GPUs each.")
@click.option("--teams", type=click.IntRange(1, 1000), default=8, show_default=True, help="Of a generated trace.")
@click.option(
    "--load",
    type=click.FloatRange(0.01, 100),
    default=1.0,
    show_default=True,
    help="GPUs asked for, over those there are.",
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=1, show_default=True)
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), help="Write a page of plots (.png, .svg or .pdf)."
)
@json_option
def sim(
    *, trace: str, jobs: int, nodes: int, teams: int, load: float, seed: int, plot: Path | None, as_json: bool
) -> None:
    """Play a trace with topology awareness and governance on and off.

    TRACE is `philly` or `helios` (generated, with the shape of those published traces), or a CSV file with the columns
    submitted_s, duration_s, gpus, team and, optionally, priority.
    """
    played = (
        generated(trace, jobs=jobs, gpus=nodes * NODE_GPUS, teams=teams, load=load, seed=seed)
        if trace in SHAPES
        else read_trace(Path(trace))
    )
    started_at = time.monotonic()
    results = [
        _run(played, nodes, governance=governance, topology=topology, seed=seed) for governance, topology in RUNS
    ]
    if plot is not None:
        _plot(results, plot)
    if as_json:
        print_json([figures(each) for each in results])
        return
    shown = table(
        "governance",
        "topology",
        "wait median",
        "p99",
        "mean",
        "used",
        "fairness",
        "preempted",
        "between racks",
        "never fit",
        text={"topology"},
    )
    for each in results:
        found = figures(each)
        shown.add_row(
            "on" if each.governance else "off",
            "on" if each.topology else "off",
            f"{found['wait_median_s']:.0f} s",
            f"{found['wait_p99_s']:.0f} s",
            f"{found['wait_mean_s']:.0f} s",
            f"{each.utilisation:.1%}",
            f"{each.fairness:.3f}",
            str(each.preemptions),
            f"{each.cross_rack_fraction:.1%}",
            str(each.never_fit),
        )
    print_table(shown)
    click.echo(f"{len(played)} jobs on {nodes} nodes, four times, in {time.monotonic() - started_at:.1f} s")


def _run(trace: list[TraceJob], nodes: int, *, governance: bool, topology: bool, seed: int) -> GovernanceResult:
    return GovernanceSimulation(trace, nodes=nodes, governance=governance, topology=topology, seed=seed).run()


def figures(result: GovernanceResult) -> dict[str, Any]:
    """Return the figures of a run for JSON."""
    waits = sorted(result.waits_s) or [0.0]
    return {
        "governance": result.governance,
        "topology": result.topology,
        "wait_median_s": percentile(waits, 50),
        "wait_p99_s": percentile(waits, 99),
        "wait_mean_s": sum(waits) / len(waits),
        "utilisation_fraction": result.utilisation,
        "fairness_jain": result.fairness,
        "preemptions": result.preemptions,
        "between_racks_fraction": result.cross_rack_fraction,
        "never_fit": result.never_fit,
    }


def _plot(results: list[GovernanceResult], path: Path) -> None:
    try:
        from netns.chart.queue_plot import plot  # noqa: PLC0415 - matplotlib is optional, and slow to load
    except ModuleNotFoundError as error:
        raise LabError(
            f"--plot {path}: needs matplotlib ({error}); install it, in the checkout: pip install '.[report]'"
        ) from None
    try:
        plot(results, path)
    except (OSError, ValueError) as error:
        raise LabError(f"--plot {path}: {error}") from None
    click.echo(f"wrote {path}", err=True)
