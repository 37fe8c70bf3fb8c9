"""The scenarios by name, with what a table shows of each: `srd sim roce`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from rich.table import Table

from netns.base.tables import table
from srd.sim.roce import scenarios
from srd.sim.roce.play import CONTENDERS, SEARCHED, UNSEARCHED, Contender
from srd.sim.roce.scenarios import Figures

Results = dict[str, dict[str, Figures]]
"""Scenario -> row -> figures."""
ROWS: Final[dict[str, Contender]] = {
    name: each
    for transport in CONTENDERS
    for name, each in ((transport, UNSEARCHED[transport]), (f"{transport}-searched", SEARCHED[transport]))
}
"""Each transport twice: with published or default settings, and with those that the same search finds for each."""


@dataclass(frozen=True, slots=True)
class SuiteColumn:
    """A figure in the table of all scenarios."""

    heading: str
    figure: str
    shown: Callable[[float], str]


@dataclass(frozen=True, slots=True)
class SuiteEntry:
    """A scenario."""

    happens: str
    play: Callable[..., Figures]
    """Of a contender; `seed`."""
    columns: tuple[SuiteColumn, ...] = ()
    """None: it is played when it is named."""


def _ms(value_us: float) -> str:
    return f"{value_us / 1000:.1f}"


def _ratio(value: float) -> str:
    return f"{value:.2f}"


def _rough(value: float) -> str:
    return f"{value:.1f}"


def _for_ever(value: float) -> str:
    return "for ever" if value else "no"


SCENARIOS: Final[dict[str, SuiteEntry]] = {
    "incast": SuiteEntry(
        "48 hosts send 2 MB to one",
        partial(scenarios.incast, senders=48, size_bytes=2_000_000),
        (SuiteColumn("incast p50 ms", "p50_us", _ms), SuiteColumn("p99 ms", "p99_us", _ms)),
    ),
    "victim": SuiteEntry(
        "flows that do not use the port of an incast, beside it over alone",
        scenarios.victim,
        (SuiteColumn("victim", "far_slowdown", _ratio), SuiteColumn("near victim", "near_slowdown", _ratio)),
    ),
    "slow-host": SuiteEntry(
        "a host takes in 5 Gbit/s: the flows between others, beside it over alone",
        scenarios.slow_receiver,
        (SuiteColumn("slow host: others", "others_max_slowdown", _rough),),
    ),
    "noisy-tenant": SuiteEntry(
        "messages of 100 kB beside another tenant's incasts, over alone",
        scenarios.noisy_tenant,
        (SuiteColumn("noisy tenant: p99", "p99_slowdown", _rough),),
    ),
    "loss": SuiteEntry(
        "a flow over a link that loses 1 %",
        partial(scenarios.loss, percent=1.0),
        (SuiteColumn("goodput, 1 % loss", "goodput", _ratio),),
    ),
    "ring-deadlock": SuiteEntry(
        "five switches in a ring, host i to host i + 2",
        scenarios.ring_deadlock,
        (SuiteColumn("deadlock", "deadlock", _for_ever),),
    ),
    "tree-deadlock": SuiteEntry("a tree that sends packets in loops while a link is down", scenarios.tree_deadlock),
    "permutation": SuiteEntry(
        "128 hosts send 1 MB each to one on another leaf",
        partial(scenarios.permutation, hosts=128, size_bytes=1_000_000),
    ),
    "all-reduce": SuiteEntry("a ring of 16 hosts, without and with a dead link", scenarios.all_reduce),
    "idle": SuiteEntry("one flow of 1 MB in an empty fabric", partial(scenarios.idle, size_bytes=1_000_000)),
}
SHOWN: Final = tuple(name for name, entry in SCENARIOS.items() if entry.columns)
"""What is played when no scenario is named."""


def run(
    names: Iterable[str],
    rows: Collection[str] = tuple(ROWS),
    *,
    seed: int,
    begins: Callable[[str, str], None] = lambda _scenario, _row: None,
) -> Results:
    """Play scenarios by the rows; `begins` is told scenario and row before each."""
    found: Results = {}
    for name in names:
        found[name] = {}
        for row in rows:
            begins(name, row)
            found[name][row] = SCENARIOS[name].play(ROWS[row], seed=seed)
    return found


def summary(found: Results) -> Table:
    """Return one table of several scenarios: the columns of each, two rows for each transport."""
    columns = [(name, column) for name in found for column in SCENARIOS[name].columns]
    made = table("transport", *(column.heading for _, column in columns), text=())
    for row in next(iter(found.values())):
        cells = (column.shown(found[name][row][column.figure]) for name, column in columns)
        made.add_row(ROWS[row].label, *cells)
    return made


def details(figures: Mapping[str, Figures]) -> Table:
    """Return the table of one scenario: all its figures, two rows for each transport."""
    headings = next(iter(figures.values()))
    made = table("transport", *headings, text=())
    for row, each in figures.items():
        made.add_row(ROWS[row].label, *(shown(value) for value in each.values()))
    return made


def shown(value: float) -> str:
    """Return a figure of any size, counts in full."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"
