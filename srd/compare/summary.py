"""Figures over the seeds of a grid's point: medians, ranges, percentiles, slowdown by size; and bounds. Pure.

A flow that was not complete takes for ever: it counts in percentiles as slower than any other, so that a p99 of a
transport that left a flow behind is `None` (never) and not that of its faster flows. Percentiles are by nearest rank.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from netns.base.percentile import percentile
from srd.compare.grid import Cell, Grid, WantedFigure
from srd.compare.outcome import CellOutcome, CellState, FlowOutcome, Loads

SIZE_BINS: Final = 10
"""Groups of flows by size, with equally many flows each."""


@dataclass(frozen=True, slots=True)
class Point:
    """What the seeds of a cell have in common."""

    fabric: str
    workload: str
    condition: str
    transport: str

    def __str__(self) -> str:
        return f"{self.fabric}, {self.condition}, {self.workload}: {self.transport}"


@dataclass(frozen=True, slots=True)
class Bin:
    """Flows of about one size."""

    most_bytes: int
    p50: float | None
    """Of the slowdown; None: never."""
    p99: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """A point's figures."""

    point: Point
    states: Mapping[str, int]
    """How many seeds ended how."""
    reason: str | None
    """The first one of a seed that is not ok."""
    note: str | None
    goodput_bps: float | None
    """Median; None: nothing was measured."""
    goodput_range_bps: tuple[float, float] | None
    """Least and most over the seeds."""
    seconds: float | None
    """Median of the completion times of the last flow, if all seeds are ok."""
    p50: float | None
    p99: float | None
    """Of the slowdown of all flows; None: never, or nothing is known."""
    longest_stall_ms: float | None
    resent_fraction: float | None
    loads: Loads
    path_shares: Mapping[str, float]
    """Of the typical seed: a transport with one path takes another one with each seed."""
    bins: tuple[Bin, ...]
    typical: CellOutcome
    """The seed with the median goodput."""
    seeds: tuple[CellOutcome, ...]
    """Those that were measured."""
    flows: tuple[FlowOutcome, ...]
    """Of all seeds."""

    @property
    def measured(self) -> bool:
        """Whether there is anything but the reason why not."""
        return CellState.UNAVAILABLE not in self.states

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        names = ("reason", "note", "goodput_bps", "seconds", "longest_stall_ms", "resent_fraction")
        return {
            **{name: getattr(self.point, name) for name in Point.__dataclass_fields__},
            "states": dict(self.states),
            **{name: getattr(self, name) for name in names},
            **asdict(self.loads),
            "path_shares": dict(self.path_shares),
            "goodput_range_bps": self.goodput_range_bps and list(self.goodput_range_bps),
            "slowdown_p50": self.p50,
            "slowdown_p99": self.p99,
            "slowdown_by_size": [[each.most_bytes, each.p50, each.p99] for each in self.bins],
        }


def summarize(grid: Grid, outcomes: Mapping[Cell, CellOutcome]) -> list[Summary]:
    """Return a summary for each point, in the order of the report: fabric, workload, condition, transport."""
    return [
        _summary(
            Point(fabric, workload, condition, transport),
            [outcomes[Cell(fabric, seed, condition, workload, transport)] for seed in grid.seeds],
        )
        for fabric in grid.fabrics
        for workload in grid.workloads
        for condition in grid.conditions
        for transport in grid.transports
    ]


def _summary(point: Point, seeds: Sequence[CellOutcome]) -> Summary:
    flows = tuple(flow for outcome in seeds for flow in outcome.flows)
    slowdowns = [_slowness(flow) for flow in flows]
    is_ok = all(outcome.state is CellState.OK for outcome in seeds)
    measured = [outcome for outcome in seeds if outcome.state is not CellState.UNAVAILABLE]
    typical = sorted(seeds, key=lambda outcome: outcome.goodput_bps)[(len(seeds) - 1) // 2]
    rates = [outcome.goodput_bps for outcome in measured]
    return Summary(
        point=point,
        states=Counter(outcome.state.value for outcome in seeds),
        reason=next((outcome.reason for outcome in seeds if outcome.reason), None),
        note=next((outcome.note for outcome in seeds if outcome.note), None),
        goodput_bps=_median(rates),
        goodput_range_bps=(min(rates), max(rates)) if rates else None,
        seconds=_median(outcome.seconds for outcome in seeds) if is_ok else None,
        p50=_percentile(slowdowns, 50),
        p99=_percentile(slowdowns, 99),
        longest_stall_ms=_median(outcome.longest_stall_ms for outcome in measured),
        resent_fraction=_median(outcome.resent_fraction for outcome in measured),
        loads=Loads(
            **{
                name: _median(getattr(outcome.loads, name) for outcome in measured)
                for name in Loads.__dataclass_fields__
            }
        ),
        path_shares=typical.path_shares,
        bins=by_size(flows),
        typical=typical,
        seeds=tuple(measured),
        flows=flows,
    )


def by_size(flows: Sequence[FlowOutcome], *, bins: int = SIZE_BINS) -> tuple[Bin, ...]:
    """Return the slowdown of flows by size. The sizes of all transports' flows are the same, hence the groups, too."""
    ordered = sorted(flows, key=lambda flow: flow.size_bytes)
    count = min(bins, len(ordered))
    found = []
    for index in range(count):
        group = ordered[index * len(ordered) // count : (index + 1) * len(ordered) // count]
        slow = [_slowness(flow) for flow in group]
        found.append(Bin(group[-1].size_bytes, _percentile(slow, 50), _percentile(slow, 99)))
    return tuple(found)


def _percentile(values: Sequence[float], percent: float) -> float | None:
    """Return a percentile; None if that is infinite, or of nothing."""
    value = percentile(values, percent) if values else math.inf
    return None if math.isinf(value) else value


def _slowness(flow: FlowOutcome) -> float:
    """Return the slowdown; infinite if it was not complete, 0 if there is nothing to compare with."""
    if flow.seconds is None:
        return math.inf
    return flow.slowdown or 0.0


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


_FIGURES: Final[Mapping[str, Callable[[Summary], float | None]]] = {
    "goodput": lambda summary: summary.goodput_bps,
    "sent_again": lambda summary: summary.resent_fraction,
}


@dataclass(frozen=True, slots=True)
class Check:
    """A wanted figure of one point."""

    point: Point
    wanted: WantedFigure
    value: float

    @property
    def met(self) -> bool:
        """Whether it is as wanted."""
        least, most = self.wanted.least, self.wanted.most
        return (least is None or self.value >= least) and (most is None or self.value <= most)

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        names = ("fabric", "workload", "condition", "transport")
        wanted = {name: getattr(self.wanted, name) for name in ("figure", "over", "least", "most")}
        return {**{name: getattr(self.point, name) for name in names}, **wanted, "value": self.value, "met": self.met}


def checks(wanted: Sequence[WantedFigure], summaries: Sequence[Summary]) -> list[Check]:
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
        if summary.point.transport in transports and set(summary.states) != {CellState.OK.value}
    ]


def _ratio(value: float | None, other: float | None) -> float | None:
    return value / other if value is not None and other else None
