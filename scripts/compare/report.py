"""report.json: all figures and their environment, from which the table, the page and the plots are made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from netns.compare.errors import ResultsError
from netns.compare.tables import write as write_whole
from scripts.compare.errors import CompareError
from scripts.compare.experiment import Results
from scripts.compare.outcome import summary

Report = dict[str, Any]

MAX_RESENT_FRACTION_LOSS: Final = 0.03
"""Most that SRD may send again where 1 % is lost: once what was lost, and as much again twice."""
MIN_MPTCP_RATIO: Final = 1.0
"""Least goodput of SRD over MPTCP's, in each condition."""


def build(results: Results, **about: Any) -> Report:
    """Return the report: `about` (fabric, capacity_bps, environment ...) and the medians by condition and protocol."""
    conditions = {
        condition: {key: summary(rounds) for key, rounds in by_key.items()} for condition, by_key in results.items()
    }
    return {**about, "conditions": conditions, "checks": checks(conditions)}


def checks(conditions: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return the requirements that these medians allow to check: name -> value, what is wanted, whether it is met."""
    found = {}
    for condition, by_key in conditions.items():
        ours, theirs = by_key.get("srd"), by_key.get("mptcp")
        if ours is not None and condition == "loss" and (resent := ours["retransmitted_fraction"]) is not None:
            met = resent <= MAX_RESENT_FRACTION_LOSS
            found["resent_fraction_loss"] = {"value": resent, "wanted": f"<= {MAX_RESENT_FRACTION_LOSS:g}", "met": met}
        if ours is not None and theirs is not None and theirs["goodput_bps"]:
            ratio = round(ours["goodput_bps"] / theirs["goodput_bps"], 3)
            met = ratio >= MIN_MPTCP_RATIO
            found[f"mptcp_ratio_{condition}"] = {"value": ratio, "wanted": f">= {MIN_MPTCP_RATIO:g}", "met": met}
    return found


def write(report: Report, path: Path) -> None:
    """Write it to `path`, whole or not at all. Raises CompareError if that is impossible."""
    write_bytes(json.dumps(report, indent=1).encode() + b"\n", path)


def write_bytes(data: bytes, path: Path) -> None:
    """Write `data` to `path`, whole or not at all, making its directory. Raises CompareError."""
    try:
        write_whole(path, data)
    except ResultsError as error:
        raise CompareError(str(error)) from None


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
