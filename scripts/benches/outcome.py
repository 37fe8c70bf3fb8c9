"""What a bench reports: figures of each round, medians over the rounds, and the requirements.

The format is the same for every case and backend: see `CaseOutcome.to_dict`. Keys end in their unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from statistics import median
from typing import Any, Literal, TypeVar

from scripts.harness.environment import environment
from srd.sim.experiments.requirement import Requirement, requirement

Figures = Mapping[str, float]
Contestant = TypeVar("Contestant")


@dataclass(frozen=True, slots=True)
class Wanted(Requirement):
    over: Literal["worst", "median"] = "worst"
    """Which of the rounds' values counts. In virtual time the worst, as every seed must meet the requirement. On real
    hosts the median, as other load on the machine affects single rounds."""

    def decisive(self, values: Iterable[float]) -> float:
        """Return the value that counts: the median, or the worst; NaN if any is NaN."""
        found = list(values)
        worst = self.worst(found)
        return median(found) if self.over == "median" and not math.isnan(worst) else worst


def wanted(*bounds: str) -> tuple[Wanted, ...]:
    """Return requirements of every round, each written as `figure <= 1.5`."""
    return tuple(Wanted(each.figure, each.relation, each.limit) for each in map(requirement, bounds))


def over(ours: Figures, theirs: Figures, ratios: Mapping[str, str]) -> dict[str, float]:
    """Return each ratio of a figure, ours over theirs, that both have; `ratios`: by name, the figure."""
    return {name: ours[key] / theirs[key] for name, key in ratios.items() if key in ours and key in theirs}


def in_turn(contestants: Sequence[Contestant], *, number: int) -> Sequence[Contestant]:
    """Return in which order contestants are measured in a round, the first of which is 1: who is first changes."""
    return contestants if number % 2 else contestants[::-1]


@dataclass(frozen=True, slots=True)
class Round:
    """One measurement: one seed, or one run of each contestant."""

    seed: int
    ours: Figures
    baselines: Mapping[str, Figures] = field(default_factory=dict)
    """Figures of the baselines in the same fabric, by name."""


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    case: str
    fabric: str
    rounds: tuple[Round, ...]
    wanted: tuple[Wanted, ...]
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Reason, such as a program that is not installed -> the figures (or patterns) that were not measured for it."""

    @property
    def ours(self) -> dict[str, float]:
        return _medians([each.ours for each in self.rounds])

    @property
    def baselines(self) -> dict[str, dict[str, float]]:
        return {name: _medians([each.baselines[name] for each in self.rounds]) for name in self.rounds[0].baselines}

    @property
    def checks(self) -> dict[Wanted, float]:
        """The deciding value of each requirement that was measured: of its worst round, or the median."""
        return {
            each: each.decisive(round_.ours[each.figure] for round_ in self.rounds)
            for each in self.wanted
            if each not in self.unmeasured
        }

    @property
    def unmeasured(self) -> dict[Wanted, str]:
        why = [(reason, pattern) for reason, figures in self.missing.items() for pattern in figures]
        found = {each: [reason for reason, pattern in why if fnmatchcase(each.figure, pattern)] for each in self.wanted}
        return {each: "; ".join(reasons) for each, reasons in found.items() if reasons}

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome for JSON; a value that is not finite is null."""
        return {
            "case": self.case,
            "fabric": self.fabric,
            "environment": environment(),
            "rounds": [
                {
                    "seed": each.seed,
                    "ours": _plain(each.ours),
                    "peers": {name: _plain(figures) for name, figures in each.baselines.items()},
                }
                for each in self.rounds
            ],
            "ours": _plain(self.ours),
            "peers": {name: _plain(figures) for name, figures in self.baselines.items()},
            "checks": {
                wanted.figure: {"value": _finite(value), "wanted": str(wanted)} for wanted, value in self.checks.items()
            },
            "missing": [{"reason": reason, "figures": list(figures)} for reason, figures in self.missing.items()],
        }


def _medians(figures: list[Figures]) -> dict[str, float]:
    return {key: median(each[key] for each in figures) for key in figures[0]}


def _plain(figures: Figures) -> dict[str, float | None]:
    return {key: _finite(value) for key, value in figures.items()}


def _finite(value: float) -> float | None:
    """Round to four significant digits, but keep counts exact; None for infinity and NaN, which JSON lacks."""
    if isinstance(value, int):
        return value
    return float(f"{value:.4g}") if math.isfinite(value) else None
