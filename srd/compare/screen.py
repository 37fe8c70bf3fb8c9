"""A run on the terminal: a line for each cell, and below it a bar with the time left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from srd.compare import figures
from srd.compare.grid import TRANSPORTS, Cell, Grid
from srd.compare.outcome import CellOutcome, CellProgress, State
from srd.compare.summary import Summary
from srd.compare.verdict import verdicts

PATHS: Final = "paths %"
_COLOURS = {State.OK: "green", State.TIMEOUT: "yellow", State.FAILED: "red", State.UNAVAILABLE: "dim"}


class Estimate:
    """Time left, from the cells that were measured: of the same workload and transport, or else of all."""

    def __init__(self) -> None:
        self._took: defaultdict[tuple[str, str], list[float]] = defaultdict(list)

    def add(self, cell: Cell, *, took_s: float) -> None:
        """Note how long a cell took."""
        self._took[cell.workload, cell.transport].append(took_s)

    def left_s(self, cells: Iterable[Cell]) -> float | None:
        """Return how long these will take; None before the first was measured."""
        everything = [seconds for each in self._took.values() for seconds in each]
        if not everything:
            return None
        mean_s = sum(everything) / len(everything)
        left_s = 0.0
        for cell in cells:
            known = self._took.get((cell.workload, cell.transport))
            left_s += sum(known) / len(known) if known else mean_s
        return left_s


def clock(seconds: float | None) -> str:
    """Return a time left, such as 2:05."""
    if seconds is None:
        return "-:--"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


class Screen:
    """Shows a run; a context manager."""

    def __init__(self, console: Console, cells: Sequence[Cell]) -> None:
        self._console = console
        self._left = list(cells)
        self._estimate = Estimate()
        self._progress = Progress(
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]} left"),
            TextColumn("{task.description}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
            refresh_per_second=5,  # it takes time of the cores that are being measured
        )
        self._task = self._progress.add_task("", total=len(cells), left=clock(None))

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begins(self, cell: Cell) -> None:
        """See runner.Watch."""
        self._progress.update(self._task, description=str(cell))

    def progress(self, cell: Cell, progress: CellProgress) -> None:
        """See runner.Watch."""
        rate = f"{figures.mbit(8 * progress.size_bytes / progress.seconds)} Mbit/s" if progress.seconds > 0 else ""
        what = f"{100 * progress.size_bytes / progress.total_bytes:.0f} %, {rate}  [yellow]{progress.event}[/yellow]"
        self._progress.update(self._task, description=f"{cell}: {what}")

    def ended(self, cell: Cell, outcome: CellOutcome, *, took_s: float | None) -> None:
        """See runner.Watch."""
        self._left.remove(cell)
        if took_s is not None:
            self._estimate.add(cell, took_s=took_s)
            self._console.print(describe(cell, outcome), highlight=False)
        left = clock(self._estimate.left_s(self._left))
        self._progress.update(self._task, advance=1, left=left)


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
                name = f"   {TRANSPORTS[summary.point.transport]:10}"
                found.append(f"{name}{aligned}  {figures.paths(summary):12}  {end}{_remark(summary)}".rstrip())
    return found


def _where(grid: Grid, fabric: str, summaries: Sequence[Summary]) -> str:
    """Return a fabric, what carries its links, and over how many seeds figures are medians."""
    backends = sorted({summary.typical.backend for summary in summaries} - {""})
    over = [f"medians of {len(grid.seeds)} seeds"] if len(grid.seeds) > 1 else []
    return ", ".join([fabric, *backends, *over])


def remarks(grid: Grid, summaries: Sequence[Summary]) -> list[str]:
    """Return what follows the table: who was fastest in each condition and what limited whom, and the loads."""
    return [*(f"{where}: {text}" for where, text in verdicts(grid, summaries)), *figures.loads(summaries)]


def _remark(summary: Summary) -> str:
    return f" ({summary.note})" if summary.note else ""
