"""A run on the terminal: a line for each cell, and below it a bar with the time left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from netns.compare.grid import TRANSPORTS, Cell, Grid
from netns.compare.outcome import Outcome, State
from netns.compare.summary import Summary

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
        )
        self._task = self._progress.add_task("", total=len(cells), left=clock(None))

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begins(self, cell: Cell) -> None:
        """See runner.Watch."""
        self._progress.update(self._task, description=str(cell))

    def ended(self, cell: Cell, outcome: Outcome, *, took_s: float | None) -> None:
        """See runner.Watch."""
        self._left.remove(cell)
        if took_s is not None:
            self._estimate.add(cell, took_s=took_s)
            self._console.print(describe(cell, outcome), highlight=False)
        left = clock(self._estimate.left_s(self._left))
        self._progress.update(self._task, advance=1, left=left)


def describe(cell: Cell, outcome: Outcome) -> str:
    """Return a cell's line, with rich's markup."""
    colour = _COLOURS[outcome.state]
    figures = outcome.reason or f"{outcome.goodput_bps / 1e6:.1f} Mbit/s, {outcome.elapsed_s:.2f} s"
    return f"[{colour}]{outcome.state.value:7}[/{colour}] {cell}: {figures}"


_WIDTHS: Final = (9, 9, 9, 9, 12, 10)
_HEADS: Final = ("Mbit/s", "time s", "p50", "p99", "sent again", "stall ms")


def table(grid: Grid, summaries: Sequence[Summary]) -> list[str]:
    """Return all points as lines, with rich's markup; p50 and p99 are of the slowdown."""
    found = []
    for group, own in groupby(summaries, key=lambda each: (each.point.fabric, each.point.workload)):
        heads = _columns(_HEADS)
        found += ["", f"[bold]{group[1]}[/bold] on {group[0]}", f"[dim]{'':14}{heads}  p50, p99: of the slowdown[/dim]"]
        for condition, points in groupby(own, key=lambda each: each.point.condition):
            found.append(f"  {condition}")
            for summary in points:
                *numbers, end = figures(summary, seeds=len(grid.seeds))
                aligned = _columns(numbers)
                found.append(f"    {TRANSPORTS[summary.point.transport]:10}{aligned}  {end}")
    return found


def _columns(texts: Sequence[str]) -> str:
    return "".join(f"{text:>{width}}" for text, width in zip(texts, _WIDTHS, strict=True))


def figures(summary: Summary, *, seeds: int) -> list[str]:
    """Return a point's figures as texts, for tables: `-` is what there is none of."""
    states = ", ".join(
        state if count == seeds else f"{state} {count} of {seeds}" for state, count in summary.states.items()
    )
    if not summary.measured:
        return ["n/a"] * 6 + [summary.reason or ""]
    return [
        _number(summary.goodput_bps, "{:.1f}", scale=1e-6),
        _number(summary.seconds, "{:.2f}"),
        _number(summary.p50, "{:.1f}"),
        _number(summary.p99, "{:.1f}"),
        _number(summary.resent_fraction, "{:.1f} %", scale=100),
        _number(summary.longest_stall_ms, "{:.0f}"),
        states if summary.reason is None else f"{states}: {summary.reason}",
    ]


def _number(value: float | None, form: str, *, scale: float = 1.0) -> str:
    return "-" if value is None else form.format(scale * value)
