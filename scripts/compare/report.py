"""report.json: all figures and their environment, from which the table, the page and the plots are made."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts.compare.errors import CompareError
from scripts.compare.experiment import Results
from scripts.compare.outcome import summary

Report = dict[str, Any]


def build(results: Results, **about: Any) -> Report:
    """Return the report: `about` (fabric, capacity_bps, environment ...) and the medians by condition and protocol."""
    return {
        **about,
        "conditions": {
            condition: {key: summary(rounds) for key, rounds in by_key.items()} for condition, by_key in results.items()
        },
    }


def write(report: Report, path: Path) -> None:
    """Write it to `path`, whole or not at all. Raises CompareError if that is impossible."""
    write_bytes(json.dumps(report, indent=1).encode() + b"\n", path)


def write_bytes(data: bytes, path: Path) -> None:
    """Write `data` to `path`, whole or not at all, making its directory. Raises CompareError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(data)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise CompareError(f"{path}: {error.strerror}") from None


def read(path: Path) -> Report:
    """Read what `write` wrote. Raises CompareError for anything else."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CompareError(f"{path}: {error.strerror}; make one with: make demo") from None
    except ValueError:
        raise CompareError(f"{path}: not JSON; make a new one with: make demo") from None
    if not isinstance(report, dict) or not isinstance(report.get("conditions"), dict):
        raise CompareError(f"{path}: not a report of this tool; make one with: make demo")
    return report


def all_srd_verified(report: Mapping[str, Any]) -> bool:
    """Whether SRD transferred the file, verified, in every round of every condition."""
    figures = [by_key.get("srd") for by_key in report["conditions"].values()]
    return all(figure is not None and figure["completed"] and figure["sha256_ok"] for figure in figures)
