"""Figures as texts."""

from __future__ import annotations

from dataclasses import replace

from srd.compare import figures
from srd.compare.outcome import Loads
from srd.compare.summary import summarize
from tests.srd.compare.cases import FILE_GRID, GRID, outcomes

SUMMARIES = summarize(FILE_GRID, outcomes(FILE_GRID))
COLUMNS = (*figures.results(FILE_GRID, "file"), *figures.troubles(FILE_GRID, "file"))


def test_columns__every_figure() -> None:
    texts = [column.text(SUMMARIES[0]) for column in COLUMNS]
    assert texts == ["4.2", "25 %", "2.00", "1.00 %", "12"]
    assert figures.paths(SUMMARIES[0]) == "50 50"
    unknown = replace(
        SUMMARIES[0], goodput_bps=None, seconds=None, resent_fraction=None, longest_stall_ms=None, flows=()
    )
    assert {column.text(unknown) for column in COLUMNS} == {"-"}


def test_end__of_each_state() -> None:
    by_name = {f"{each.point.condition} {each.point.transport}": figures.end(each, seeds=1) for each in SUMMARIES}
    assert by_name["clean srd"] == "ok"
    assert by_name["dead cubic"] == "timeout: stopped after 5 s with 50 % received"
    assert by_name["clean bbr"] == "tcp: this kernel has no congestion control 'bbr'"
    assert by_name["clean mptcp"] == "failed: h1: boom"
    assert figures.end(replace(SUMMARIES[0], states={"ok": 2, "timeout": 1}), seeds=3) == "ok 2 of 3, timeout 1 of 3"


def test_spread__of_several_seeds() -> None:
    assert figures.spread(SUMMARIES[0]) == "-"
    several = replace(SUMMARIES[0], seeds=SUMMARIES[0].seeds * 2, goodput_range_bps=(80.1e6, 860e6))
    assert figures.spread(several) == "80.1 to 860"


def test_troubles__no_stall_where_flows_begin_at_random_times() -> None:
    assert [column.head for column in figures.troubles(GRID, "search")] == ["sent again"]
    assert [column.head for column in figures.troubles(GRID, "bulk")] == ["sent again", "stall ms"]


def test_loads__leave_out_what_hung() -> None:
    assert figures.loads(SUMMARIES) == [
        "the relay used 31 % to 31 % of one core",
        "the machine was 50 % to 50 % busy, all cores together",
    ]
    busy = replace(SUMMARIES[0], loads=Loads(machine_busy=0.97, stolen=0.17))
    hung = replace(SUMMARIES[0], states={"timeout": 1}, loads=Loads(machine_busy=0.01))
    assert figures.loads([busy, hung]) == [
        "the machine was 97 % to 97 % busy, all cores together",
        "its hypervisor withheld 17 % to 17 % of them",
    ]


def test_numbers() -> None:
    assert [figures.mbit(bps) for bps in (None, 3_040_000.0, 99.94e6, 964.2e6)] == ["-", "3.0", "99.9", "964"]
    assert [figures.percent(share) for share in (None, 0.0222, 0.0999, 0.5)] == ["-", "2.22 %", "9.99 %", "50 %"]
    assert [figures.milliseconds(value) for value in (None, 8.52, 12.4, 16_404.2)] == ["-", "8.5", "12", "16 404"]
