"""A requirement: a figure, and the bound that it must meet."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, cast, get_args

from srd.sim.experiments.errors import ExperimentError

Relation = Literal["<=", ">=", "<", ">"]
RELATIONS: Final[tuple[str, ...]] = get_args(Relation)


@dataclass(frozen=True, slots=True)
class Requirement:
    """A figure and its bound."""

    figure: str
    relation: Relation
    limit: float

    def met(self, value: float) -> bool:
        """Whether `value` meets the requirement; NaN never does."""
        return {
            "<=": value <= self.limit,
            ">=": value >= self.limit,
            "<": value < self.limit,
            ">": value > self.limit,
        }[self.relation]

    def worst(self, values: Iterable[float]) -> float:
        """Return the value that is farthest to the wrong side; NaN if any is NaN."""
        found = list(values)
        if any(math.isnan(value) for value in found):
            return math.nan
        return min(found) if self.relation.startswith(">") else max(found)

    def __str__(self) -> str:
        return f"{self.relation} {self.limit:g}"


def requirement(text: str) -> Requirement:
    """Return a requirement from its notation, such as `figure <= 1.5`. Raises ExperimentError."""
    match text.split():
        case [figure, relation, limit] if relation in RELATIONS:
            try:
                return Requirement(figure, cast(Relation, relation), float(limit))
            except ValueError:
                pass
    raise ExperimentError(f"bounds: {text!r} is no bound; write FIGURE {' | '.join(RELATIONS)} NUMBER")
