"""What is on the wire: a capture of a link of the lab, and a search for the tenants' data in it."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from netns.lab.lab import Lab
from netns.observe.capture import Captured, capture
from scripts.card_demo.pattern import words_of_data
from scripts.harness.errors import BenchError


@dataclass(slots=True)
class WireCapture:
    path: Path
    counts: Captured | None = None
    error: Exception | None = None

    @property
    def packets(self) -> int:
        return 0 if self.counts is None else self.counts.packets

    @property
    def dropped(self) -> int:
        """How many the capture itself has lost."""
        return 0 if self.counts is None else self.counts.dropped

    @property
    def size_bytes(self) -> int:
        return self.path.stat().st_size

    def matches(self) -> int:
        """Return how often the tenants' data can be read in the file, headers and all."""
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return words_of_data(content)


@contextmanager
def captured(lab: Lab, link: str, *, path: Path) -> Iterator[WireCapture]:
    """Capture both directions of a link while the block runs, as `srd-lab capture` does."""
    made = WireCapture(path)
    ready, over = threading.Event(), threading.Event()

    def record() -> None:
        try:
            made.counts = capture(lab, link, path=path, stop=over.is_set, ready=ready.set)
        except Exception as error:  # noqa: BLE001 - raised again by the thread that waits
            made.error = error
        finally:
            ready.set()

    thread = threading.Thread(target=record, name="capture")
    thread.start()
    try:
        ready.wait()
        yield made
    finally:
        over.set()
        thread.join()
    if made.error is not None:
        raise BenchError(f"capture of {link}: {made.error}") from made.error
