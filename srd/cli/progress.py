"""A progress bar with the rate, on stderr and only where a person looks."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text


def rate_text(bits_per_s: float) -> str:
    """Return a rate in the units of networks."""
    for unit in ("bit/s", "kbit/s", "Mbit/s"):
        if bits_per_s < 1000:
            return f"{bits_per_s:.3g} {unit}"
        bits_per_s /= 1000
    return f"{bits_per_s:.2f} Gbit/s"


class RateColumn(ProgressColumn):
    """The recent rate, in bits a second."""

    def render(self, task: Task) -> Text:
        """Return the rate of `task`; nothing before there is one."""
        speed = task.finished_speed or task.speed
        return Text(rate_text(speed * 8) if speed else "", style="progress.data.speed")


class TransferProgress:
    """One file's progress; shows nothing when not `visible` or when stderr is no terminal."""

    def __init__(self, name: str, *, total_bytes: int, visible: bool) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(binary_units=True),
            RateColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not visible or not console.is_terminal,
        )
        self._task = self._bar.add_task(name, total=total_bytes)
        self._bar.start()

    def add(self, size_bytes: int) -> None:
        """Count `size_bytes` more."""
        self._bar.advance(self._task, size_bytes)

    def show(self, done_bytes: int) -> None:
        """Set how much is done."""
        self._bar.update(self._task, completed=done_bytes)

    def close(self) -> None:
        """Leave the bar as it is and give the terminal back."""
        self._bar.stop()
