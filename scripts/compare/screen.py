"""Terminal output: the progress while it runs, and the table afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from scripts.compare import contestants, figures
from scripts.compare.conditions import Condition
from scripts.compare.contestants import Contestant
from scripts.compare.outcome import Outcome

_NAME_WIDTH: Final = max(len(contestant.label) for contestant in contestants.CONTESTANTS)
_WIDE_COLUMNS: Final = 100


class Screen:
    """Follows a comparison: a progress bar for the running transfer, a line for each that ended."""

    def __init__(self, console: Console, *, byte_count: int, rounds: int) -> None:
        self._console = console
        self._byte_count = byte_count
        self._rounds = rounds
        self._note = ""
        self._progress: Progress | None = None
        self._task = TaskID(0)

    def condition_begins(self, condition: Condition, *, round_number: int) -> None:
        """Print the condition's heading."""
        round_text = f"  (round {round_number} of {self._rounds})" if self._rounds > 1 else ""
        self._console.print(f"\n[bold]{condition.key}[/bold]: {condition.title}{round_text}", highlight=False)

    def transfer_begins(self, contestant: Contestant) -> None:
        """Start the transfer's progress bar."""
        self._note = ""
        self._progress = Progress(
            TextColumn("    {task.description}"),
            BarColumn(bar_width=None, complete_style=contestant.colour, finished_style=contestant.colour),
            TextColumn("{task.percentage:>4.0f} %"),
            TextColumn("{task.fields[rate]:>12}"),
            TextColumn("{task.fields[note]}", style="yellow"),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,  # a log file gets the lines only
            refresh_per_second=5,
        )
        self._task = self._progress.add_task(
            f"{contestant.label:<{_NAME_WIDTH}}", total=self._byte_count or 1, rate="", note="starting"
        )
        self._progress.start()

    def progress(self, *, seconds: float, byte_count: int) -> None:
        """Update the bar."""
        if self._progress is not None:
            rate = f"{figures.mbit(8 * byte_count / seconds)} Mbit/s" if seconds > 0 else ""
            self._progress.update(self._task, completed=byte_count, rate=rate, note=self._note)

    def blackholed(self, spine: str) -> None:
        """Show the failed spine beside the bar."""
        self._note = f"{spine} has failed"

    def transfer_ended(self, contestant: Contestant, outcome: Outcome) -> None:
        """Replace the bar by a line."""
        self.close()
        mark = Text("  ✓ ", style="green") if outcome.verified else Text("  ✗ ", style="red")
        line = f"{contestant.label:<{_NAME_WIDTH}} {figures.mbit(outcome.goodput_bps):>5} Mbit/s "
        if outcome.completed:
            stall = figures.milliseconds(outcome.longest_stall_ms)
            line += f"{figures.seconds(outcome.seconds):>6} s   longest stall {stall} ms"
        self._console.print(mark + Text(line))
        for remark in (outcome.failure, outcome.note):
            if remark:
                self._console.print(Text(f"    {remark}", style="yellow"))

    def close(self) -> None:
        """Remove the bar, if there is one."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def table(report: Mapping[str, Any], *, width: int) -> Table:
    """Return the figures as a table for a terminal of `width` columns."""
    wide = width >= _WIDE_COLUMNS
    result = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    result.add_column("")
    for heading in ("Mbit/s", *(["of capacity"] if wide else []), "seconds", "resent", "stall ms"):
        result.add_column(heading, justify="right")
    result.add_column("paths %" if not wide else "share of each path %")
    result.add_column("SHA-256")
    for condition, by_key in report["conditions"].items():
        result.add_section()
        result.add_row(Text(condition, style="bold"))
        for key, figure in by_key.items():
            result.add_row(*_row(report, key, figure, wide=wide))
        for key in report["unavailable"]:
            result.add_row(f"  {contestants.BY_KEY[key].label}", Text("n/a", style="dim"))
    return result


def headlines(report: Mapping[str, Any]) -> list[str]:
    """Return one line per condition: SRD compared with the capacity, and with the default, TCP cubic."""
    lines = []
    for condition, by_key in report["conditions"].items():
        srd, cubic = by_key.get("srd"), by_key.get("tcp-cubic")
        if srd is None or not srd["completed"]:
            continue
        line = f"{condition}: SRD reached {100 * srd['goodput_bps'] / report['capacity_bps']:.0f} % of the capacity"
        if cubic is not None and cubic["completed"]:
            line += f", {srd['goodput_bps'] / cubic['goodput_bps']:.1f} times TCP cubic"
        elif cubic is not None:
            line += "; TCP cubic did not finish"
        lines.append(line)
    return lines


def loads(report: Mapping[str, Any]) -> list[str]:
    """Return the load of relay and machine, one line each, without stalled transfers, which cause no load."""
    lines = []
    for key, sentence in (
        ("relay_cpu_fraction", "the relay used {} to {} of one core"),
        ("machine_busy_fraction", "the machine was {} to {} busy, all cores together"),
        ("stolen_fraction", "its hypervisor withheld {} to {} of them"),
    ):
        known = [
            figure[key]
            for by_key in report["conditions"].values()
            for figure in by_key.values()
            if figure["completed"] and figure[key] is not None
        ]
        if any(known):
            lines.append(sentence.format(figures.percent(min(known)), figures.percent(max(known))))
    return lines


def checks(report: Mapping[str, Any]) -> list[str]:
    """Return one line per requirement."""
    return [
        f"{name} {check['value']:.3g}, wanted {check['wanted']}: {'met' if check['met'] else 'missed'}"
        for name, check in report["checks"].items()
    ]


def remarks(report: Mapping[str, Any]) -> list[str]:
    """Return the lines below the table: failures, missing contestants, remarks."""
    lines = [f"{contestants.BY_KEY[key].label}: {reason}" for key, reason in report["unavailable"].items()]
    for condition, by_key in report["conditions"].items():
        for key, figure in by_key.items():
            lines += [
                f"{contestants.BY_KEY[key].label}, {condition}: {remark}"
                for remark in (figure["failure"], figure["note"])
                if remark
            ]
    return lines


def _row(report: Mapping[str, Any], key: str, figure: Mapping[str, Any], *, wide: bool) -> list[Text | str]:
    verification = figures.verification(completed=figure["completed"], sha256_ok=figure["sha256_ok"])
    share = figure["goodput_bps"] / report["capacity_bps"]
    return [
        Text(f"  {contestants.BY_KEY[key].label}", style="bold" if key == "srd" else ""),
        figures.mbit(figure["goodput_bps"]),
        *([f"{100 * share:.0f} %"] if wide else []),
        figures.seconds(figure["seconds"]),
        figures.percent(figure["retransmitted_fraction"]),
        figures.milliseconds(figure["longest_stall_ms"]),
        figures.path_shares(figure["path_shares"]),
        Text(verification, style="green" if verification == "ok" else "red"),
    ]
