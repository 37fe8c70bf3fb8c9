"""Traces of jobs for the simulation: generated ones, shaped like published ones, or a CSV file.

What is generated has the shapes that the papers report, not their data:
- philly (Jeon et al., ATC 2019, Microsoft): most jobs have 1 GPU, few more than 8; durations are log-normal with a
  median of minutes and a tail of a day and more (here: of a day).
- helios (Hu et al., SC 2021, SenseTime): as many short jobs of 1 GPU, and the large ones (64 and more GPUs) have most
  of the GPU time.
Jobs arrive as a Poisson process, busier by day than by night; a few teams have most of them.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from netns.base.naming import named
from netns.errors import GovernanceError

DAY_S: Final = 86400.0
COLUMNS: Final = ("submitted_s", "duration_s", "gpus", "team", "priority")

SHAPES: Final = {
    "philly": ((1, 0.69), (2, 0.09), (4, 0.09), (8, 0.09), (16, 0.025), (32, 0.01), (64, 0.005)),
    "helios": ((1, 0.55), (2, 0.10), (4, 0.12), (8, 0.14), (16, 0.05), (32, 0.02), (64, 0.015), (256, 0.005)),
}
"""GPUs of a job, and how many of all jobs have so many. A GPU of theirs is a node here."""
_MEDIAN_S: Final = {"philly": 780.0, "helios": 600.0}
_SIGMA: Final = 1.9
"""Of the logarithm of durations: a mean six times the median."""
_LONGEST_S: Final = DAY_S


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job of a trace."""

    submitted_s: float
    duration_s: float
    gpus: int
    team: str
    priority: int


def generated(
    shape: str, *, jobs: int, gpus: int, teams: int, load: float, seed: int, nodes_gpus: int = 8
) -> list[TraceJob]:
    """Return a trace that would use `load` of so many GPUs, if nothing waited."""
    random = Random(seed)  # noqa: S311 - a simulation
    sizes, weights = zip(*SHAPES[shape], strict=True)
    drawn = []
    for _ in range(jobs):
        size = random.choices(sizes, weights)[0]
        longer = 1 + math.log2(size) / 2  # larger jobs run longer
        duration_s = min(random.lognormvariate(math.log(_MEDIAN_S[shape] * longer), _SIGMA), _LONGEST_S)
        drawn.append((max(60.0, duration_s), min(size * nodes_gpus, gpus)))
    span_s = sum(duration_s * size for duration_s, size in drawn) / gpus / load
    times, at = [], 0.0
    for _ in drawn:
        busy = 1 + 0.5 * math.sin(2 * math.pi * at / DAY_S)
        at += random.expovariate(busy)
        times.append(at)
    scale = span_s / at
    # A few teams have most jobs, as in both traces.
    names, shares = [f"team{number:02}" for number in range(teams)], [1 / (number + 1) for number in range(teams)]
    return [
        TraceJob(
            time * scale, duration_s, size, random.choices(names, shares)[0], random.choices((0, 50, 100), (6, 3, 1))[0]
        )
        for time, (duration_s, size) in zip(times, drawn, strict=True)
    ]


def read_trace(path: Path) -> list[TraceJob]:
    """Return the jobs of a CSV file with the columns COLUMNS. Raises GovernanceError with file, line and column."""
    try:
        with path.open(newline="") as file:
            rows = csv.DictReader(file)
            missing = [name for name in COLUMNS[:4] if name not in (rows.fieldnames or ())]
            if missing:
                raise GovernanceError(f"{path}: no column {missing[0]}; its columns are to be {', '.join(COLUMNS)}")
            found = [_job(path, rows.line_num, row) for row in rows]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise GovernanceError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if not found:
        raise GovernanceError(f"{path}: holds no job")
    return sorted(found, key=lambda job: job.submitted_s)


def _job(path: Path, line: int, row: dict[str, str | None]) -> TraceJob:
    with named(f"{path}: line {line}: ", ValueError, error=GovernanceError):
        made = TraceJob(
            float(row["submitted_s"] or ""),
            float(row["duration_s"] or ""),
            int(row["gpus"] or ""),
            row["team"] or "",
            int(row.get("priority") or 0),
        )
    if made.gpus < 1 or not 0 < made.duration_s < math.inf or not 0 <= made.submitted_s < math.inf or not made.team:
        raise GovernanceError(f"{path}: line {line}: gpus and duration_s are more than 0, team is not empty")
    return made
