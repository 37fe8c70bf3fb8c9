"""What a run writes beside its page: report.json, cells.csv and flows.csv, each whole or not at all."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from netns.base.files import write_whole
from netns.compare.errors import ResultsError
from netns.compare.grid import Cell
from netns.compare.outcome import Outcome

Row = Sequence[str | float | int | None]
_CELL = ("fabric", "workload", "condition", "transport", "seed")
_FIGURES = ("state", "seconds", "goodput_bps", "bytes", "longest_stall_ms", "resent_fraction", "machine_busy", "reason")


def cells_csv(outcomes: Mapping[Cell, Outcome]) -> str:
    """Return a line for each cell."""
    rows = []
    for cell, outcome in outcomes.items():
        figures = outcome.to_dict()
        rows.append([*(getattr(cell, name) for name in _CELL), *(figures[name] for name in _FIGURES)])
    return _csv([*_CELL, *_FIGURES], rows)


def flows_csv(outcomes: Mapping[Cell, Outcome]) -> str:
    """Return a line for each flow; one that was not complete has no seconds."""
    rows = (
        [*(getattr(cell, name) for name in _CELL), flow.size_bytes, flow.at_s, flow.seconds, flow.ideal_s]
        for cell, outcome in outcomes.items()
        for flow in outcome.flows
    )
    return _csv([*_CELL, "bytes", "at_s", "seconds", "ideal_s"], rows)


def cells_json(outcomes: Mapping[Cell, Outcome]) -> list[dict[str, Any]]:
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


def as_json(document: Mapping[str, Any]) -> str:
    """Return JSON as files here have it."""
    return json.dumps(document, indent=1) + "\n"


def _csv(header: Row, rows: Iterable[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()
