"""What a worker wrote down: one JSON array a line, (time, kind, ...), in a file that outlives it.

An entry is written before what it tells of is done, and at once: of a process that was killed it is known what it may
have done. Times are the wall clock's, which all processes share whatever their monotonic clock says.
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
