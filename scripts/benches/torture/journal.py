"""A worker's journal: one JSON array per line, (time, kind, ...), in a file that outlives the worker.

An entry is written, unbuffered, before its action is done, so that the possible actions of a killed process are known.
Times are those of the wall clock, which all processes share even if their monotonic clocks differ.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """One line."""

    at: float
    kind: str
    values: list[Any]


class Journal:
    """Appends to a file."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def note(self, kind: str, *values: Any) -> None:
        """Write an entry."""
        os.write(self._fd, json.dumps([time.time(), kind, *values]).encode() + b"\n")

    def close(self) -> None:
        """Let the file go."""
        os.close(self._fd)


def entries(path: Path) -> Iterator[Entry]:
    """Read a journal; what is not whole yet is left out."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                at, kind, *values = json.loads(line)
                yield Entry(at, kind, values)
