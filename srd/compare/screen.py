"""A run on the terminal: a line for each cell, and below it a bar with the time left."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final, Self

from rich.console import Console

from netns.base.progress import Progress
from srd.compare import figures
from srd.compare.grid import TRANSPORTS, Cell, Grid
from srd.compare.outcome import CellOutcome, CellProgress, CellState
from srd.compare.summary import Summary
from srd.compare.verdict import verdicts

PATHS: Final = "paths %"
_COLOURS = {CellState.OK: "green", CellState.TIMEOUT: "yellow", CellState.FAILED: "red", CellState.UNAVAILABLE: "dim"}


class Screen:
    """Shows a run; a context manager."""

    def __init__(self, console: Console, cells: Sequence[Cell]) -> None:
        self._console = console
        # Without a terminal the lines of the cells are enough.
        self._progress = Progress("srd compare", map(_kind, cells), is_plain=False, stream=console.file)

    def __enter__(self) -> Self:
        self._progress.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begins(self, cell: Cell) -> None:
        """See runner.Watch."""
        self._progress.at(str(cell))

    def progress(self, cell: Cell, progress: CellProgress) -> None:
        """See runner.Watch."""
        rate = f"{figures.mbit(8 * progress.size_bytes / progress.seconds)} Mbit/s" if progress.seconds > 0 else ""
        what = f"{100 * progress.size_bytes / progress.total_bytes:.0f} %, {rate}  {progress.event}"
        self._progress.at(f"{cell}: {what}".rstrip())

    def ended(self, cell: Cell, outcome: CellOutcome, *, took_s: float | None) -> None:
        """See runner.Watch."""
        if took_s is not None:
            with self._progress.above():
                self._console.print(describe(cell, outcome), highlight=False)
        self._progress.end(_kind(cell), took_s=took_s, is_measured=took_s is not None)


def _kind(cell: Cell) -> str:
    """Return what decides how long a cell takes."""
    return f"{cell.workload} {cell.transport}"


def describe(cell: Cell, outcome: CellOutcome) -> str:
    """Return a cell's line, with rich's markup."""
    colour = _COLOURS[outcome.state]
    found = f"{figures.mbit(outcome.goodput_bps)} Mbit/s, {outcome.elapsed_s:.2f} s"
    found += f", longest stall {figures.milliseconds(outcome.longest_stall_ms)} ms"
    return f"[{colour}]{outcome.state.value:7}[/{colour}] {cell}: {outcome.reason or found}"


def table(grid: Grid, summaries: Sequence[Summary]) -> list[str]:
    """Return all points as lines, with rich's markup."""
    found = []
    for (fabric, workload), group in groupby(summaries, key=lambda each: (each.point.fabric, each.point.workload)):
        own, shown = list(group), (*figures.results(grid, workload), *figures.troubles(grid, workload))
        heads = "".join(f"{column.head:>{column.width}}" for column in shown)
        found += ["", f"[bold]{workload}[/bold] on {_where(grid, fabric, own)}: {figures.words(grid, workload)}"]
        found.append(f"[dim]{'':13}{heads}  {PATHS:12}  end[/dim]")
        for condition, points in groupby(own, key=lambda each: each.point.condition):
            found.append(f" {condition}  [dim]{grid.conditions[condition]}[/dim]")
            for summary in points:
                texts = (column.text(summary) if summary.measured else "n/a" for column in shown)
                aligned = "".join(f"{text:>{column.width}}" for text, column in zip(texts, shown, strict=True))
                end = figures.end(summary, seeds=len(grid.seeds))
                end += f" ({summary.note})" if summary.note else ""
                name = f"   {TRANSPORTS[summary.point.transport]:10}"
                found.append(f"{name}{aligned}  {figures.paths(summary):12}  {end}".rstrip())
    return found


def _where(grid: Grid, fabric: str, summaries: Sequence[Summary]) -> str:
    """Return a fabric, what carries its links, and over how many seeds figures are medians."""
    backends = sorted({summary.typical.backend for summary in summaries} - {""})
    over = [f"medians of {len(grid.seeds)} seeds"] if len(grid.seeds) > 1 else []
    return ", ".join([fabric, *backends, *over])


def remarks(grid: Grid, summaries: Sequence[Summary]) -> list[str]:
    """Return what follows the table: who was fastest in each condition and what limited whom, and the loads."""
    return [*(f"{where}: {text}" for where, text in verdicts(grid, summaries)), *figures.loads(summaries)]
