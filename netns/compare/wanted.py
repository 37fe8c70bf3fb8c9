"""What a grid wants of its figures, and whether it is so. Pure: from the medians over the seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from netns.compare.grid import TRANSPORTS, Wanted
from netns.compare.outcome import State
from netns.compare.summary import Point, Summary

_FIGURES: Final[Mapping[str, Callable[[Summary], float | None]]] = {
    "goodput": lambda summary: summary.goodput_bps,
    "sent_again": lambda summary: summary.resent_fraction,
}


@dataclass(frozen=True, slots=True)
class Check:
    """A wanted figure of one point."""

    point: Point
    wanted: Wanted
    value: float

    @property
    def met(self) -> bool:
        """Whether it is as wanted."""
        least, most = self.wanted.least, self.wanted.most
        return (least is None or self.value >= least) and (most is None or self.value <= most)

    def __str__(self) -> str:
        wanted, point = self.wanted, self.point
        what = f"{point.condition}: {wanted.figure.replace('_', ' ')} of {TRANSPORTS[wanted.transport]}"
        if wanted.over is not None:
            what += f" over {TRANSPORTS[wanted.over]}'s"
        bound = f"at least {wanted.least:g}" if wanted.least is not None else f"at most {wanted.most:g}"
        return f"{what} {self.value:.3g}, wanted {bound}: {'met' if self.met else 'missed'}"

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        names = ("fabric", "workload", "condition", "transport")
        wanted = {name: getattr(self.wanted, name) for name in ("figure", "over", "least", "most")}
        return {**{name: getattr(self.point, name) for name in names}, **wanted, "value": self.value, "met": self.met}


def checks(wanted: Sequence[Wanted], summaries: Sequence[Summary]) -> list[Check]:
    """Return all that these figures allow to check, in the order of the points."""
    by_point = {summary.point: summary for summary in summaries}
    found = []
    for point, summary in by_point.items():
        for each in wanted:
            if point.transport != each.transport or (each.conditions and point.condition not in each.conditions):
                continue
            value = _FIGURES[each.figure](summary)
            if each.over is not None:
                other = by_point.get(Point(point.fabric, point.workload, point.condition, each.over))
                value = _ratio(value, None if other is None else _FIGURES[each.figure](other))
            if value is not None:
                found.append(Check(point, each, round(value, 4)))
    return found


def incomplete(transports: Sequence[str], summaries: Sequence[Summary]) -> list[Point]:
    """Return the points of these transports of which not every cell is ok."""
    return [
        summary.point
        for summary in summaries
        if summary.point.transport in transports and set(summary.states) != {State.OK.value}
    ]


def _ratio(value: float | None, other: float | None) -> float | None:
    return value / other if value is not None and other else None
