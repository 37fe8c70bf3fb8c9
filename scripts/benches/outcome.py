"""What a bench reports: figures of each round, medians over the rounds, and the figures that were asked for.

The form is the same for every case, on whatever fabric: see `Outcome.to_dict`. Keys end in their unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

from scripts.compare.environment import environment

Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A figure that was asked for, and what it should be."""

    figure: str
    relation: Literal["<=", ">=", "<", ">"]
    limit: float
    over: Literal["worst", "median"] = "worst"
    """Which of the rounds' values counts. In virtual time the worst: a seed that misses is a miss. On real hosts the
    median: rounds differ by what else the machine did."""

    def decisive(self, values: Iterable[float]) -> float:
        """Of several rounds' values, that which counts; worst is what is hardest to be content with; NaN if any is."""
        found = list(values)
        if any(math.isnan(value) for value in found):
            return math.nan
        if self.over == "median":
            return median(found)
        return min(found) if self.relation.startswith(">") else max(found)

    def met(self, value: float) -> bool:
        """Whether `value` is as wanted; NaN never is."""
        return {
            "<=": value <= self.limit,
            ">=": value >= self.limit,
            "<": value < self.limit,
            ">": value > self.limit,
        }[self.relation]

    def __str__(self) -> str:
        return f"{self.relation} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Round:
    """One measurement: one seed, or one turn of all contestants."""

    seed: int
    ours: Figures
    peers: Mapping[str, Figures] = field(default_factory=dict)
    """Beside it, what others did in the same fabric: name -> figures."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """All rounds of one case."""

    case: str
    fabric: str
    rounds: tuple[Round, ...]
    wanted: tuple[Wanted, ...]

    @property
    def ours(self) -> dict[str, float]:
        """Medians over the rounds."""
        return _medians([each.ours for each in self.rounds])

    @property
    def peers(self) -> dict[str, dict[str, float]]:
        """Medians over the rounds, by peer."""
        return {name: _medians([each.peers[name] for each in self.rounds]) for name in self.rounds[0].peers}

    @property
    def checks(self) -> dict[Wanted, float]:
        """Each figure that was asked for: of its worst round, or the median."""
        return {each: each.decisive(round_.ours[each.figure] for round_ in self.rounds) for each in self.wanted}

    def to_dict(self) -> dict[str, Any]:
        """For JSON; a value that could not be had is null."""
        return {
            "case": self.case,
            "fabric": self.fabric,
            "environment": environment(),
            "rounds": [
                {
                    "seed": each.seed,
                    "ours": _plain(each.ours),
                    "peers": {name: _plain(figures) for name, figures in each.peers.items()},
                }
                for each in self.rounds
            ],
            "ours": _plain(self.ours),
            "peers": {name: _plain(figures) for name, figures in self.peers.items()},
            "checks": {
                wanted.figure: {"value": _finite(value), "wanted": str(wanted)} for wanted, value in self.checks.items()
            },
        }


def _medians(figures: list[Figures]) -> dict[str, float]:
    return {key: median(each[key] for each in figures) for key in figures[0]}


def _plain(figures: Figures) -> dict[str, float | None]:
    return {key: _finite(value) for key, value in figures.items()}


def _finite(value: float) -> float | None:
    """Four digits say all that a measurement knows, counts are exact; JSON has neither infinity nor NaN."""
    if isinstance(value, int):
        return value
    return float(f"{value:.4g}") if math.isfinite(value) else None
