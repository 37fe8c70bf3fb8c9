"""A point's figures as texts, the same in the terminal and in the page. `-` is what there is none of. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from srd.compare.grid import Grid
from srd.compare.outcome import CellState
from srd.compare.summary import Summary
from srd.compare.traffic import Bulk, File, Rpc, describe

MISSING: Final = "-"
SEVERAL: Final = 2
"""Seeds from which on there is a spread."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    head: str
    width: int
    """In characters, in the terminal."""
    text: Callable[[Summary], str]


def results(grid: Grid, workload: str) -> tuple[Column, ...]:
    """Return what a table of this workload shows of how fast a point was that was measured.

    Slowdowns compare flows of many sizes: what is one flow has its share of the capacity instead.
    """
    compared: tuple[Column, ...] = (
        Column("slowdown p50", 13, lambda summary: _number(summary.p50, "{:.1f}")),
        Column("p99", 8, lambda summary: _number(summary.p99, "{:.1f}")),
    )
    if is_one_flow(grid, workload):
        compared = (Column("capacity", 10, lambda summary: _number(capacity_share(summary), "{:.0f} %", scale=100)),)
    return (
        Column("Mbit/s", 8, lambda summary: mbit(summary.goodput_bps)),
        *compared,
        Column("time s", 8, lambda summary: _number(summary.seconds, "{:.2f}")),
    )


def troubles(grid: Grid, workload: str) -> tuple[Column, ...]:
    """Return what a table of this workload shows of what went wrong on the way.

    Where flows begin at random times a receiver often has nothing to receive: stalls are not shown there.
    """
    again = Column("sent again", 11, lambda summary: percent(summary.resent_fraction))
    stall = Column("stall ms", 9, lambda summary: milliseconds(summary.longest_stall_ms))
    return (again,) if isinstance(grid.workloads[workload], Rpc) else (again, stall)


def words(grid: Grid, workload: str) -> str:
    """Return a workload in one line."""
    parameters = describe(grid.workloads[workload])
    size = f"{parameters.get('size_bytes', 0) / 2**20:.4g} MiB"
    match parameters["kind"]:
        case "Bulk":
            return f"One host sends {size} to one of another rack."
        case "File" if parameters["path"] is not None:
            return f"One host sends {parameters['path']} ({size}) to one of another rack."
        case "File":
            return f"One host sends a file of {size} to one of another rack."
        case "Incast":
            return f"{parameters['senders']} hosts send {size} each to one host of another rack, at once."
        case "AllToAll":
            return f"Every host sends {size} to every host of another rack, at once."
        case _:
            scaled = "" if parameters["scale"] == 1 else f", sizes times {parameters['scale']:g}"
            return (
                f"Messages with the sizes of {parameters['sizes']}{scaled}, between random hosts of different racks at "
                f"random times (Poisson) for {parameters['duration_s']:g} s, at {100 * parameters['load']:g} % load."
            )


def is_one_flow(grid: Grid, workload: str) -> bool:
    """Whether a workload is a single flow."""
    return isinstance(grid.workloads[workload], Bulk | File)


def capacity_share(summary: Summary) -> float | None:
    """Return the goodput of a single flow over that in an empty fabric; None if nothing limits that."""
    flow = next(iter(summary.flows), None)
    if flow is None or not flow.ideal_s or summary.goodput_bps is None:
        return None
    return summary.goodput_bps * flow.ideal_s / (8 * flow.size_bytes)


def end(summary: Summary, *, seeds: int) -> str:
    """Return how the cells of a point ended, and why."""
    if not summary.measured:
        return summary.reason or ""
    states = ", ".join(
        state if count == seeds else f"{state} {count} of {seeds}" for state, count in summary.states.items()
    )
    return states if summary.reason is None else f"{states}: {summary.reason}"


def loads(summaries: Sequence[Summary]) -> list[str]:
    """Return how busy relay and machine were, a line each, without what hung, which causes no load."""
    own = [summary.loads for summary in summaries if set(summary.states) == {CellState.OK.value}]
    lines = []
    for name, sentence in (
        ("relay_cpu", "the relay used {} to {} of one core"),
        ("machine_busy", "the machine was {} to {} busy, all cores together"),
        ("stolen", "its hypervisor withheld {} to {} of them"),
    ):
        known = [share for each in own if (share := getattr(each, name)) is not None]
        if any(known):
            lines.append(sentence.format(percent(min(known)), percent(max(known))))
    return lines


def paths(summary: Summary) -> str:
    """Return the share of each spine in whole percent: "25 25 25 25"."""
    return " ".join(f"{100 * share:.0f}" for share in summary.path_shares.values())


def spread(summary: Summary) -> str:
    """Return the least and the most Mbit/s of the seeds, if there are several: "801 to 860"."""
    if summary.goodput_range_bps is None or len(summary.seeds) < SEVERAL:
        return MISSING
    return " to ".join(map(mbit, summary.goodput_range_bps))


def cores(summary: Summary) -> str:
    """Return how many cores the workers of a transport used: "1.21"."""
    return _number(summary.loads.workers_cpu, "{:.2f}")


def mbit(bps: float | None) -> str:
    """Return a rate in Mbit/s, without the unit: "964", "8.4"."""
    return _number(bps, "{:.1f}" if bps is not None and bps < 99.95e6 else "{:.0f}", scale=1e-6)


def percent(share: float | None) -> str:
    """Return a share in percent, with its unit; small ones with two decimals."""
    return _number(share, "{:.2f} %" if share is not None and share < 0.1 else "{:.0f} %", scale=100)


def milliseconds(value: float | None) -> str:
    """Return a duration in ms, without the unit: "8.5", "16 404"."""
    return _number(value, "{:.1f}" if value is not None and value < 10 else "{:,.0f}").replace(",", " ")


def _number(value: float | None, form: str, *, scale: float = 1.0) -> str:
    return MISSING if value is None else form.format(scale * value)
