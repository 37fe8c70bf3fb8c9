"""Who was fastest in each condition, and what limited whom: a few sentences for each. Pure.

A limit is what the figures show, in this order: the links, when nearly all of their capacity was used; the one path of
a transport that keeps to one; the relay; the processor, of a worker or of the machine; otherwise the transport itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from srd.compare import figures
from srd.compare.grid import TRANSPORTS, Grid
from srd.compare.summary import Point, Summary
from srd.compare.traffic import Rpc

FULL_LINKS: Final = 0.85
"""Share of the capacity; headers and the start of a transfer take the rest."""
FULL_CORE: Final = 0.8
"""Share of a core, or of all cores; sender and receiver wait for each other for the rest."""
ONE_PATH: Final = 0.97
"""Share of the bytes that went up to one spine."""
MUCH_STOLEN: Final = 0.05
"""Share of all cores."""
_SRD: Final = "srd"


def verdicts(grid: Grid, summaries: Sequence[Summary]) -> list[tuple[str, str]]:
    """Return where, and what is to say, for each condition in which something was measured."""
    lines = []
    for point, group in groupby(summaries, key=_without_transport):
        if own := [summary for summary in group if summary.measured]:
            lines.append((_where(grid, point), " ".join(_sentences(grid, own))))
    return lines


def _without_transport(summary: Summary) -> Point:
    point = summary.point
    return Point(point.fabric, point.workload, point.condition, "")


def _where(grid: Grid, point: Point) -> str:
    names = (grid.fabrics, point.fabric), (grid.workloads, point.workload)
    return ", ".join([*(name for known, name in names if len(known) > 1), point.condition])


def _sentences(grid: Grid, summaries: Sequence[Summary]) -> list[str]:
    ranked = _ranked(grid, summaries)
    found = [_comparison(grid, ranked)] if ranked else []
    if unfinished := [_name(each) for each in summaries if each not in ranked]:
        found.append(f"{_listed(unfinished)} did not finish.")
    if figures.is_one_flow(grid, summaries[0].point.workload):
        found += [f"{_name(each)} was limited by {limit(each)}." for each in _shown(ranked)]
    return found


def _ranked(grid: Grid, summaries: Sequence[Summary]) -> list[Summary]:
    """Return those that reached their end, the fastest first."""
    known = [(_cost(grid, summary), index) for index, summary in enumerate(summaries)]
    return [summaries[index] for _, index in sorted((cost, index) for cost, index in known if cost is not None)]


def _cost(grid: Grid, summary: Summary) -> float | None:
    """Return what is less for a faster transport; None if it has not reached its end."""
    return summary.p99 if _is_rpc(grid, summary) else summary.seconds


def _shown(ranked: Sequence[Summary]) -> list[Summary]:
    """Return the fastest, and the one that it is compared with: SRD, or the next if that is SRD."""
    srd = [summary for summary in ranked[1:] if summary.point.transport == _SRD]
    return [*ranked[:1], *(srd or ranked[1:])[:1]]


def _comparison(grid: Grid, ranked: Sequence[Summary]) -> str:
    best, *others = _shown(ranked)
    text = f"{_name(best)} was fastest with {_figure(grid, best)}"
    if not others:
        return f"{text}."
    other = others[0]
    ratio = (_cost(grid, other) or 0.0) / (_cost(grid, best) or 1.0)
    return f"{text}; {_name(other)} had {_figure(grid, other)} and took {ratio:.2f} times as long."


def _figure(grid: Grid, summary: Summary) -> str:
    if _is_rpc(grid, summary):
        return f"a slowdown of {summary.p99 or 0:.1f} at p99"
    text = f"{figures.mbit(summary.goodput_bps)} Mbit/s"
    if (spread := figures.spread(summary)) != figures.MISSING:
        text += f" ({spread})"
    share = figures.capacity_share(summary) if figures.is_one_flow(grid, summary.point.workload) else None
    return text if share is None else f"{text}, {figures.percent(share)} of the capacity"


def limit(summary: Summary) -> str:
    """Return what held a single flow back, with the figures that show it."""
    share, loads = figures.capacity_share(summary) or 0.0, summary.loads
    spines = len(summary.path_shares)
    if share >= FULL_LINKS:
        return "the links"
    if spines > 1 and max(summary.path_shares.values()) >= ONE_PATH and share * spines >= FULL_LINKS:
        return f"the one path of {spines} that it takes"
    if (loads.relay_cpu or 0.0) >= FULL_CORE:
        return f"the relay, which carries the links ({_cores(summary)})"
    if max(loads.machine_busy or 0.0, loads.busiest_worker_cpu or 0.0) >= FULL_CORE:
        return f"the processor ({_cores(summary)})"
    return f"itself: its congestion control and its recovery of losses ({_cores(summary)})"


def _cores(summary: Summary) -> str:
    """Return who used the processor, and how much of it."""
    loads = summary.loads
    if loads.machine_busy is None or loads.workers_cpu is None or loads.cores is None:
        return "the processor time is not known"
    rest = max(0.0, loads.machine_busy * loads.cores - loads.workers_cpu - (loads.relay_cpu or 0.0))
    parts = [f"of {loads.cores:g} cores its two ends used {loads.workers_cpu:.2f}"]
    if loads.relay_cpu is not None:
        parts.append(f"the relay {loads.relay_cpu:.2f}")
    parts.append(f"the kernel and other programs {rest:.2f}")
    if (loads.stolen or 0.0) >= MUCH_STOLEN:
        parts.append(f"and the hypervisor withheld {(loads.stolen or 0.0) * loads.cores:.2f}")
    return ", ".join(parts)


def _is_rpc(grid: Grid, summary: Summary) -> bool:
    return isinstance(grid.workloads[summary.point.workload], Rpc)


def _name(summary: Summary) -> str:
    return TRANSPORTS[summary.point.transport]


def _listed(names: Sequence[str]) -> str:
    return " and ".join([*([", ".join(names[:-1])] if names[1:] else []), names[-1]])
