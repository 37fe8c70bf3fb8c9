"""What a run writes, but for its page: cells.jsonl, report.json, cells.csv and flows.csv.

cells.jsonl has one line for each finished cell, written whole, or a later run does not see it. The others are written
whole or not at all.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from netns.base.files import write_whole
from netns.signals import undisturbed
from srd.compare.errors import ResultsError
from srd.compare.grid import Cell
from srd.compare.outcome import CellOutcome

FILE = "cells.jsonl"

Row = Sequence[str | float | int | None]
_CELL = ("fabric", "workload", "condition", "transport", "seed")
_FIGURES = ("state", "seconds", "goodput_bps", "bytes", "longest_stall_ms", "resent_fraction", "machine_busy", "reason")


class Results:
    """The finished cells in a directory, by digest."""

    def __init__(self, directory: Path, *, anew: bool = False) -> None:
        """Make the directory, and read what is there, or remove it to begin anew. Raises ResultsError."""
        self.path = directory / FILE
        self._found: dict[str, CellOutcome] = {}
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if anew:
                self.path.unlink(missing_ok=True)
            text = self._whole_lines(self.path.read_text(encoding="utf-8")) if self.path.exists() else ""
        except (OSError, UnicodeDecodeError) as error:
            raise ResultsError(f"{self.path}: {error}; give another directory by --output") from None
        for number, line in enumerate(text.splitlines(), 1):
            self._take(line, number=number)

    def _whole_lines(self, text: str) -> str:
        """Return the lines; cut off one that a killed run, or a full disk, has left without its end."""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            os.truncate(self.path, len(whole.encode()))
        return whole

    def _take(self, line: str, *, number: int) -> None:
        try:
            fields: Any = json.loads(line)
            self._found[fields["digest"]] = CellOutcome.from_dict(fields["outcome"])
        except (ValueError, KeyError, TypeError) as error:
            raise ResultsError(
                f"{self.path}: line {number} is no cell ({type(error).__name__}: {error}); remove the file, or the line"
            ) from None

    def get(self, digest: str) -> CellOutcome | None:
        """Return the outcome of a finished cell."""
        return self._found.get(digest)

    def add(self, digest: str, cell: Cell, outcome: CellOutcome) -> None:
        """Write a finished cell; it is on the disk when this returns. Raises ResultsError."""
        line = json.dumps({"digest": digest, "cell": asdict(cell), "outcome": outcome.to_dict()}) + "\n"
        with undisturbed():  # a signal comes before the line or after it
            try:
                with self.path.open("ab", buffering=0) as file:
                    file.write(line.encode())
                    os.fsync(file.fileno())
            except OSError as error:
                raise ResultsError(f"{self.path}: {error.strerror}") from None
            self._found[digest] = outcome


def cells_csv(outcomes: Mapping[Cell, CellOutcome]) -> str:
    """Return a line for each cell."""
    rows = []
    for cell, outcome in outcomes.items():
        figures = outcome.to_dict()
        rows.append([*(getattr(cell, name) for name in _CELL), *(figures[name] for name in _FIGURES)])
    return _csv([*_CELL, *_FIGURES], rows)


def flows_csv(outcomes: Mapping[Cell, CellOutcome]) -> str:
    """Return a line for each flow; one that was not complete has no seconds."""
    rows = (
        [*(getattr(cell, name) for name in _CELL), flow.size_bytes, flow.at_s, flow.seconds, flow.ideal_s]
        for cell, outcome in outcomes.items()
        for flow in outcome.flows
    )
    return _csv([*_CELL, "bytes", "at_s", "seconds", "ideal_s"], rows)


def cells_json(outcomes: Mapping[Cell, CellOutcome]) -> list[dict[str, Any]]:
    """Return each cell with its outcome, flows left out, which flows.csv has."""
    return [
        asdict(cell) | {key: value for key, value in outcome.to_dict().items() if key != "flows"}
        for cell, outcome in outcomes.items()
    ]


def write(path: Path, text: str | bytes) -> None:
    """Write a file, whole or not at all. Raises ResultsError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode() if isinstance(text, str) else text)
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}") from None


def _csv(header: Row, rows: Iterable[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()
