from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from scripts.compare import conditions, contestants
from scripts.compare.outcome import Outcome
from scripts.compare.report import Report
from scripts.compare.screen import Screen, headlines, loads, remarks, table


def shown(report: Report, *, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(table(report, width=width))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_table__fits_and_shows_every_figure(report: Report, width: int) -> None:
    text = shown(report, width=width)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    row = next(line for line in text.splitlines() if "SRD" in line).split()
    assert row == ["SRD", "800", *(["80", "%"] if width == 120 else []), "1.00", "1.25", "%", "12", "25", "75", "ok"]
    assert "incomplete" in text
    assert "19 500" in text
    assert text.count("n/a") == 2


def test_headlines__compare_where_there_is_something_to_compare(report: Report) -> None:
    assert headlines(report) == [
        "clean: SRD reached 80 % of the capacity, 4.0 times TCP cubic",
        "blackhole: SRD reached 80 % of the capacity; TCP cubic did not finish",
    ]
    del report["conditions"]["clean"]["tcp-cubic"]
    report["conditions"]["blackhole"]["srd"]["completed"] = False
    assert headlines(report) == ["clean: SRD reached 80 % of the capacity"]


def test_loads__leave_out_transfers_that_hang(report: Report) -> None:
    report["conditions"]["blackhole"]["tcp-cubic"]["relay_cpu_fraction"] = 0.01
    report["conditions"]["clean"]["srd"]["relay_cpu_fraction"] = 0.6
    assert loads(report) == ["the relay used 31 % to 60 % of one core"]
    report["conditions"]["clean"]["srd"]["machine_busy_fraction"] = 0.97
    report["conditions"]["clean"]["tcp-cubic"]["stolen_fraction"] = 0.0
    assert loads(report)[1:] == ["the machine was 97 % to 97 % busy, all cores together"]
    report["conditions"]["clean"]["srd"]["stolen_fraction"] = 0.17
    assert loads(report)[-1] == "its hypervisor withheld 0.00 % to 17 % of them"


def test_remarks__missing_failed_and_noted(report: Report) -> None:
    report["conditions"]["clean"]["srd"]["note"] = "something"
    assert remarks(report) == [
        "MPTCP: mptcp: this kernel offers <none>",
        "SRD, clean: something",
        "TCP cubic, blackhole: stopped after 20 s with 40 % received",
    ]


@pytest.mark.parametrize("terminal", [True, False])
def test_screen__leaves_a_line_for_each_transfer(outcome: Outcome, *, terminal: bool) -> None:
    stream = io.StringIO()
    screen = Screen(Console(file=stream, width=100, force_terminal=terminal), byte_count=100_000_000, rounds=2)
    srd = contestants.BY_KEY["srd"]
    screen.condition_begins(conditions.BY_KEY["blackhole"], round_number=2)
    screen.transfer_begins(srd)
    screen.progress(seconds=0.5, byte_count=50_000_000)
    screen.blackholed("spine3")
    screen.progress(seconds=0.6, byte_count=60_000_000)
    screen.transfer_ended(srd, outcome)
    screen.transfer_begins(srd)
    screen.transfer_ended(srd, replace(outcome, completed=False, failure="gone", note="noted"))
    screen.close()
    text = stream.getvalue()
    assert "round 2 of 2" in text
    assert "✓" in text
    assert "12 ms" in text
    assert "✗" in text
    assert "gone" in text
    assert "noted" in text
    assert ("spine3 has failed" in text) == terminal
