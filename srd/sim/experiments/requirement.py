"""A requirement: a figure, and the bound that it must meet."""

from __future__ import annotations

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
