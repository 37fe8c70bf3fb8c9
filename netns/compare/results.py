"""cells.jsonl: one line for each finished cell. A line is written whole, or a later run does not see it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from netns.compare.errors import ResultsError
from netns.compare.grid import Cell
from netns.compare.outcome import Outcome
from netns.signals import undisturbed

FILE = "cells.jsonl"


class Results:
    """The finished cells in a directory, by digest."""

    def __init__(self, directory: Path, *, anew: bool = False) -> None:
        """Make the directory, and read what is there, or remove it to begin anew. Raises ResultsError."""
        self.path = directory / FILE
        self._found: dict[str, Outcome] = {}
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
            self._found[fields["digest"]] = Outcome.from_dict(fields["outcome"])
        except (ValueError, KeyError, TypeError) as error:
            raise ResultsError(
                f"{self.path}: line {number} is no cell ({type(error).__name__}: {error}); remove the file, or the line"
            ) from None

    def get(self, digest: str) -> Outcome | None:
        """Return the outcome of a finished cell."""
        return self._found.get(digest)

    def add(self, digest: str, cell: Cell, outcome: Outcome) -> None:
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
