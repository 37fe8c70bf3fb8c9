"""A worker's journal: one JSON array per line, (time, kind, ...), in a file that remains when the worker ends.

An entry is written, unbuffered, before its action, so that a killed process has journalled all its possible actions.
Times are wall-clock times, as monotonic clocks differ between time namespaces.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple


class JournalEntry(NamedTuple):
    at: float
    kind: str
    values: list[Any]


class Journal:
    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def note(self, kind: str, *values: Any) -> None:
        os.write(self._fd, json.dumps([time.time(), kind, *values]).encode() + b"\n")

    def close(self) -> None:
        os.close(self._fd)


def entries(path: Path) -> Iterator[JournalEntry]:
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                at, kind, *values = json.loads(line)
                yield JournalEntry(at, kind, values)
