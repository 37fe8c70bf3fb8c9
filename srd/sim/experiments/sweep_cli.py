"""The command `srd sweep`; srd finds it by the entry point `srd.commands`."""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Final

import click

from netns.base.files import file_or_example, write_whole
from netns.base.options import json_option
from netns.base.output import print_json
from netns.base.progress import Progress
from netns.base.tables import console, print_table, table
from netns.errors import LabError
from srd.sim.errors import SimulationError
from srd.sim.experiments import parquet
from srd.sim.experiments.grid import ExperimentCell, ExperimentGrid, read_grid
from srd.sim.experiments.sweep import DataSet, sweep

_OUT: Final = Path("out")
GRIDS: Final = Path(__file__).parent / "grids"
NAMES: Final = tuple(sorted(path.stem for path in GRIDS.glob("*.yaml")))
"""The built-in grids, which docs/guide/reproduce.md shows."""


@click.command(name="sweep")
@click.argument("grid_name", metavar=f"GRID.yaml|{'|'.join(NAMES)}")
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where results are, and those of an earlier run that it goes on with.  [default: out/NAME]",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 1024),
    default=lambda: os.cpu_count() or 1,
    metavar="N",
    help="Processes here; 1: this one.  [default: one for each processor]",
)
@click.option("--scheduler", metavar="ADDRESS", help="A Dask scheduler (tcp://...) whose workers simulate, instead.")
@click.option("--anew", is_flag=True, help="Forget the results of earlier runs.")
@json_option
def sweep_command(
    *, grid_name: str, output: Path | None, workers: int, scheduler: str | None, anew: bool, as_json: bool
) -> None:
    """Simulate every combination of a grid's topologies, workloads, transports, plans, paths and seeds.

    A second run simulates only what has no result. The output has flows/*.parquet, one data set with a row for each
    flow, and report.html. Results are the same to the last bit whoever simulates. The exit status is 1 if an experiment
    failed.
    """
    try:
        parquet.require()
        grid = read_grid(file_or_example(grid_name, examples=GRIDS))
        data = DataSet(output or _OUT / grid.name, grid)
        if anew:
            shutil.rmtree(data.directory / "flows", ignore_errors=True)
        with Progress("experiments", ["one"] * len(data.missing()), workers=workers, is_plain=False) as progress:
            failed = sweep(data, workers=workers, scheduler=scheduler, done=lambda _cell, _outcome: progress.end("one"))
        cells = [cell for cell in grid.cells if cell not in failed]
        found = _report(data, grid, cells=cells) if cells else {}
    except (LabError, SimulationError) as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        print_json([asdict(case) | {"figures": figures} for case, figures in found.items()])
    else:
        _print(found)
        console().print(f"\nwrote {data.directory}/report.html and flows/*.parquet")
    if failed:
        cell, reason = next(iter(failed.items()))
        raise click.ClickException(
            f"{len(failed)} of {len(grid.cells)} experiments failed, the first: {cell.case.scene}, "
            f"{cell.case.contestant}, seed {cell.seed}: {reason}"
        )


def _report(
    data: DataSet, grid: ExperimentGrid, *, cells: list[ExperimentCell]
) -> dict[ExperimentCell, dict[str, float]]:
    try:
        from srd.sim.experiments.page import render, summaries  # noqa: PLC0415 - extras, and half a second
    except ModuleNotFoundError as error:
        raise SimulationError(
            f"the report needs {error.name}; install it, in the checkout: pip install '.[report]'"
        ) from None
    page = data.directory / "report.html"
    try:
        write_whole(page, render(data, grid, cells).encode())
    except OSError as error:
        raise SimulationError(f"{page}: {error.strerror}; choose another place") from error
    return summaries(data, cells)


def _print(found: dict[ExperimentCell, dict[str, float]]) -> None:
    from srd.sim.experiments.page import COLUMNS, text  # noqa: PLC0415 - as above

    made = table("where", "what", *(heading for _, heading in COLUMNS), text=("what",))
    for case, figures in found.items():
        made.add_row(case.scene, case.contestant, *(text(figures.get(name)) for name, _ in COLUMNS))
    print_table(made)
