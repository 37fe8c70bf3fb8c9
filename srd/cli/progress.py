"""A progress bar with the rate, on stderr, and only on a terminal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from netns.base.printable import printable
from srd.peer import Peer

PROGRESS_INTERVAL_S = 0.05
"""Sampling interval of a transfer: short enough to see a stall of a tenth of a second."""


def rate_text(bits_per_s: float) -> str:
    """Return a rate as text, in bit/s with a decimal prefix."""
    for unit in ("bit/s", "kbit/s", "Mbit/s"):
        if bits_per_s < 1000:
            return f"{bits_per_s:.3g} {unit}"
        bits_per_s /= 1000
    return f"{bits_per_s:.2f} Gbit/s"


class RateColumn(ProgressColumn):
    """The recent rate in bit/s."""

    def render(self, task: Task) -> Text:
        """Return the rate of `task`; empty while it is unknown."""
        speed = task.finished_speed or task.speed
        return Text(rate_text(speed * 8) if speed else "", style="progress.data.speed")


class TransferProgress:
    """One file's progress; shows nothing when not `visible` or when stderr is not a terminal.

    `total_bytes`: None if it is not known.
    """

    def __init__(self, name: str, *, total_bytes: int | None, visible: bool) -> None:
        console = Console(stderr=True, emoji=False)  # a name with ':bug:' in it is plain text
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(binary_units=True),
            RateColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not visible or not console.is_terminal,
        )
        self._task = self._bar.add_task(printable(name), total=total_bytes)
        self._bar.start()

    def add(self, size_bytes: int) -> None:
        """Advance by `size_bytes`."""
        self._bar.advance(self._task, size_bytes)

    def show(self, done_bytes: int) -> None:
        """Set the bytes that are done."""
        self._bar.update(self._task, completed=done_bytes)

    def note(self, line: str) -> None:
        """Print a line on stderr, above the bar if there is one."""
        self._bar.console.print(printable(line), markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Stop updating the bar and release the terminal."""
        self._bar.stop()


class ProgressWatch:
    """Samples the bytes that land from a peer, and shows the progress of all that it sends."""

    def __init__(self, peer: Peer, *, visible: bool) -> None:
        self._peer = peer
        self._visible = visible
        self._progress: TransferProgress | None = None
        self._sampler: asyncio.Future[None] | None = None
        self._base_bytes = 0  # landed, and not of these files; less what was there

    def start(self, name: str, *, total_bytes: int | None, on_progress: Callable[[float, int], None]) -> None:
        """Start to watch; `on_progress(seconds, bytes)` is called when new bytes have landed."""
        self.stop()
        self._progress = TransferProgress(name, total_bytes=total_bytes, visible=self._visible)
        self._base_bytes = self._peer.landed_bytes
        self._sampler = asyncio.ensure_future(self._sample(self._progress, on_progress))

    def add(self, size_bytes: int) -> None:
        """Count bytes that were there, so that they do not land."""
        self._base_bytes -= size_bytes

    async def _sample(self, progress: TransferProgress, on_progress: Callable[[float, int], None]) -> None:
        started, shown = None, self._peer.landed_bytes
        while True:
            landed_bytes = self._peer.landed_bytes
            if landed_bytes != shown:
                started = time.monotonic() if started is None else started
                shown = landed_bytes
                progress.show(landed_bytes - self._base_bytes)
                on_progress(time.monotonic() - started, landed_bytes - self._base_bytes)
            await asyncio.sleep(PROGRESS_INTERVAL_S)

    def stop(self) -> None:
        """Stop watching. Further calls have no effect."""
        if self._sampler is not None:
            self._sampler.cancel()
        if self._progress is not None:
            self._progress.close()
        self._progress = self._sampler = None
