"""Who was fastest, and what limited whom."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from srd.compare.outcome import CellOutcome, CellState, Loads
from srd.compare.summary import Summary, summarize
from srd.compare.verdict import limit, verdicts
from tests.srd.compare.cases import FILE_GRID, GRID, done, hung, outcomes

IDEAL_S = 0.5
"""Of the flows of `done`."""


def file_summaries(**seconds: float | None) -> list[Summary]:
    """Summaries of the file's grid by transport; None: it hung, absent: not measured."""
    missing = CellOutcome(CellState.UNAVAILABLE, "not measured")
    made = {}
    for cell in FILE_GRID.cells():
        took_s = seconds.get(cell.transport, 0.0)
        made[cell] = hung() if took_s is None else done(took_s) if took_s else missing
    return summarize(FILE_GRID, made)


def test_verdict__the_fastest_first_also_when_it_is_not_srd() -> None:
    lines = verdicts(FILE_GRID, file_summaries(srd=1.25, cubic=2.0, mptcp=0.5))
    assert [where for where, _ in lines] == ["clean", "dead"]
    assert lines[0][1].startswith(
        "MPTCP was fastest with 16.8 Mbit/s, 100 % of the capacity; SRD had 6.7 Mbit/s, 40 % of the "
        "capacity and took 2.50 times as long. MPTCP was limited by the links. SRD was limited by itself"
    )


def test_verdict__srd_beside_the_best_other() -> None:
    line = verdicts(FILE_GRID, file_summaries(srd=0.5, cubic=2.0, mptcp=1.0))[0][1]
    assert "SRD was fastest with 16.8 Mbit/s, 100 % of the capacity; MPTCP had 8.4 Mbit/s" in line
    assert "TCP cubic" not in line


def test_verdict__what_did_not_finish() -> None:
    line = verdicts(FILE_GRID, file_summaries(srd=1.0, cubic=None, mptcp=None))[0][1]
    assert line.startswith("SRD was fastest with 8.4 Mbit/s, 50 % of the capacity. TCP cubic and MPTCP did not finish.")
    assert verdicts(FILE_GRID, file_summaries(srd=None))[0] == ("clean", "SRD did not finish.")
    assert verdicts(FILE_GRID, file_summaries()) == []


def test_verdict__of_several_workloads() -> None:
    lines = verdicts(GRID, summarize(GRID, outcomes()))
    assert [where for where, _ in lines] == ["bulk, clean", "bulk, dead", "search, clean", "search, dead"]
    assert "with a slowdown of 4.0 at p99" in lines[2][1]
    assert "limited" not in lines[2][1]
    assert "8.4" not in lines[0][1]
    assert "(4.2 to 4.2)" in lines[0][1]


@pytest.mark.parametrize(
    ("seconds", "loads", "shares", "expected"),
    [
        (IDEAL_S / 0.9, Loads(machine_busy=1.0), {}, "the links"),
        (4 * IDEAL_S / 0.9, Loads(0.3), {"a": 0.0, "b": 1.0, "c": 0.0, "d": 0.0}, "the one path of 4 that it takes"),
        (8 * IDEAL_S, Loads(0.3), {"a": 0.0, "b": 1.0, "c": 0.0, "d": 0.0}, "itself: .*time is not known"),
        (
            1.0,
            Loads(0.9, stolen=0.2, workers_cpu=1.0, cores=2),
            {"a": 0.5, "b": 0.5},
            r"the processor \(of 2 cores its two ends used 1.00, the kernel and other programs 0.80, and the hyp",
        ),
        (1.0, Loads(0.5, workers_cpu=1.3, busiest_worker_cpu=0.9), {}, "the processor "),
        (
            1.0,
            Loads(0.9, relay_cpu=0.95, workers_cpu=0.5, cores=2),
            {},
            r"the relay, which carries the links .of 2 cores .* 0.50, the relay 0.95, the kernel .* 0.35\)",
        ),
        (1.0, Loads(), {}, "itself: .*the processor time is not known"),
    ],
)
def test_limit(seconds: float, loads: Loads, shares: dict[str, float], expected: str) -> None:
    summary = replace(file_summaries(srd=seconds)[0], loads=loads, path_shares=shares)
    assert re.match(expected, limit(summary)), limit(summary)
