"""`srd compare`: the command; srd finds it by the entry point `srd.commands`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from netns.backends.choice import require_root
from netns.base.options import Size, json_option
from netns.base.output import print_json
from netns.base.program import INTERRUPTED
from netns.errors import LabError
from netns.signals import signals_raise
from srd.compare import runner
from srd.compare.errors import GridError
from srd.compare.file import MAX_SEEDS, NAMES, grid_file, read_grid
from srd.compare.grid import TRANSPORTS, Cell, Grid
from srd.compare.outcome import CellOutcome, CellState
from srd.compare.overrides import overridden
from srd.compare.results import Results, cells_csv, cells_json, flows_csv, write
from srd.compare.screen import Screen, remarks, table
from srd.compare.summary import Summary, checks, incomplete, summarize
from srd.errors import SrdError

_OUT: Final = Path("out")


class _Interrupted(click.ClickException):
    """A signal has ended the run."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.exit_code = status  # type: ignore[misc] # click reads it of the instance


@click.command(name="compare")
@click.argument("grid_name", metavar=f"FILE.yaml|{'|'.join(NAMES)}")
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where results are, and those of an earlier run that it goes on with.  [default: out/NAME]",
)
@click.option("--transports", metavar="A,B", help=f"Only these, out of {','.join(TRANSPORTS)}.")
@click.option("--conditions", metavar="A,B", help="Only these of the grid's conditions.")
@click.option(
    "--seeds",
    type=click.IntRange(min=1, max=MAX_SEEDS),
    metavar="N",
    help="Measure all N times, with the seeds 1 to N; figures are medians.",
)
@click.option(
    "--file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What workloads of a file send, instead of the grid's.",
)
@click.option("--size", type=Size(least=1), help="How many random bytes workloads of a file send, such as 64M.")
@click.option("--anew", is_flag=True, help="Forget the results of earlier runs, and measure all.")
@click.option("--show", is_flag=True, help="Print the file, to write another from it, and measure nothing.")
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="PNG",
    help="Draw what has been measured into this file, and measure nothing.",
)
@json_option
def compare(
    *,
    grid_name: str,
    output: Path | None,
    transports: str | None,
    conditions: str | None,
    seeds: int | None,
    file: Path | None,
    size: int | None,
    anew: bool,
    show: bool,
    picture: Path | None,
    as_json: bool,
) -> None:
    """Compare SRD with kernel TCP (cubic, BBR) and MPTCP on fabrics of network namespaces; needs root.

    The file says on which fabrics, in which conditions and with which workloads. Each combination is a cell; a second
    run measures only the cells that have no result. The output has report.html, report.json, cells.csv and flows.csv.
    With --json it prints report.json, and all else on stderr.

    The exit status is 1 if a cell is not ok of which the grid says that it must be.
    """
    path = grid_file(grid_name)
    try:
        if show:
            click.echo(_text(path), nl=False)
            return
        grid = overridden(
            read_grid(path), transports=transports, conditions=conditions, seeds=seeds, file=file, size_bytes=size
        )
        directory = output or _OUT / grid.name
        console = Console(stderr=as_json, highlight=False, soft_wrap=True)
        if picture is not None:
            _draw(grid, directory, picture)
            console.print(f"wrote {picture}")
            return
        report = _run(grid, directory=directory, anew=anew, console=console)
    except GridError as error:
        raise click.UsageError(str(error)) from None
    except (LabError, SrdError) as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        print_json(report)
    if report["incomplete"]:
        raise click.ClickException(
            f"{'; '.join(report['incomplete'])}: not every cell is ok, which {grid.name} requires"
        )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise GridError(f"{path}: {error.strerror}; the built-in grids are {', '.join(NAMES)}") from None


def _run(grid: Grid, *, directory: Path, anew: bool, console: Console) -> dict[str, Any]:
    """Measure what is missing, and write everything; return report.json."""
    require_root("srd compare")
    started_at, began_at = datetime.now(tz=UTC), time.monotonic()
    results = Results(directory, anew=anew)
    missing = {key: reason for key, reason in runner.lacking().items() if key in grid.transports}
    for key, reason in missing.items():
        console.print(f"without {TRANSPORTS[key]}: {reason}")
    cells = list(grid.cells())
    screen = Screen(console, cells)
    try:
        with signals_raise(), screen:
            outcomes = runner.run(grid, results=results, missing=missing, watch=screen)
    except (KeyboardInterrupt, SystemExit) as stop:
        status = stop.code if isinstance(stop, SystemExit) and isinstance(stop.code, int) else INTERRUPTED
        count = sum(results.get(grid.digest(cell)) is not None for cell in cells)
        done = f"{count} of {len(cells)} cells are in {results.path}"
        raise _Interrupted(f"interrupted; {done}: the same command goes on", status=status) from None
    summaries = summarize(grid, outcomes)
    report = {
        "grid": grid.describe(),
        "unavailable": missing,
        "environment": runner.environment(),
        "started_at": started_at.isoformat(timespec="seconds"),
        "took_s": round(time.monotonic() - began_at, 1),
        "points": [summary.to_dict() for summary in summaries],
        "checks": [check.to_dict() for check in checks(grid.wanted, summaries)],
        "incomplete": [str(point) for point in incomplete(grid.must_complete, summaries)],
        "cells": cells_json(outcomes),
    }
    for line in table(grid, summaries):
        console.print(line)
    console.print()
    for line in remarks(grid, summaries):
        if console.is_terminal:  # whole words in each of its lines
            console.print(Padding(Text(line), (0, 0, 0, 2)), soft_wrap=False)
        else:
            console.print(f"  {line}", markup=False)
    _write(grid, outcomes, summaries=summaries, report=report, directory=directory)
    console.print(f"\nwrote {directory}/report.html, report.json, cells.csv and flows.csv")
    return report


def _write(
    grid: Grid,
    outcomes: Mapping[Cell, CellOutcome],
    *,
    summaries: Sequence[Summary],
    report: Mapping[str, Any],
    directory: Path,
) -> None:
    from srd.compare.page import render  # noqa: PLC0415 - Matplotlib takes half a second

    write(directory / "report.json", json.dumps(report, indent=1) + "\n")
    write(directory / "cells.csv", cells_csv(outcomes))
    write(directory / "flows.csv", flows_csv(outcomes))
    write(directory / "report.html", render(grid, summaries, report=report))


def _draw(grid: Grid, directory: Path, picture: Path) -> None:
    from srd.compare.plots import picture_png  # noqa: PLC0415 - Matplotlib takes half a second

    results = Results(directory)
    outcomes = {cell: results.get(grid.digest(cell)) or _NOT_MEASURED for cell in grid.cells()}
    if all(outcome is _NOT_MEASURED for outcome in outcomes.values()):
        raise GridError(f"{directory}: has no results of {grid.name}; measure first: srd compare {grid.name}")
    write(picture, picture_png(grid, summarize(grid, outcomes)))


_NOT_MEASURED: Final = CellOutcome(CellState.UNAVAILABLE, "not measured")
