"""What is written and shown: every cell is in it, also what did not reach its end."""

from __future__ import annotations

import csv
import io
import json
import re
from functools import cache
from pathlib import Path

import pytest
from rich.console import Console

from netns.compare.errors import ResultsError
from netns.compare.grid import TRANSPORTS, Cell
from netns.compare.page import render
from netns.compare.plots import picture_png, throughput
from netns.compare.screen import Estimate, Screen, clock, table
from netns.compare.summary import summarize
from netns.compare.tables import as_json, cells_csv, cells_json, flows_csv, write
from tests.netns.compare.cases import GRID, done, hung, outcomes

SUMMARIES = summarize(GRID, outcomes())


@cache
def page() -> str:
    report = {
        "grid": GRID.describe(),
        "unavailable": {"bbr": "tcp: this kernel has no congestion control 'bbr'"},
        "environment": {"cpu_count": 2, "kernel": "<6.1>"},
        "cells": cells_json(outcomes()),
    }
    return render(GRID, SUMMARIES, report=report)


def test_page__shows_every_point_and_why_one_is_missing() -> None:
    html = page()
    for name in TRANSPORTS.values():
        assert html.count(f"</span>{name}</td>") == 2 * 2
    assert "TCP BBR could not be measured: tcp: this kernel has no congestion control &#39;bbr&#39;." in html
    assert html.count("timeout: stopped after 5 s with 50 % received") == 2
    assert html.count("failed: h1: boom") == 4
    assert html.count("<svg") == 2 * 2


def test_page__is_self_contained_and_escapes() -> None:
    html = page()
    assert not re.search(r'(src|href)="(?!#)', html)
    assert "&lt;6.1&gt;" in html
    assert "a &lt;remark&gt;" in html
    assert "None" not in html


def test_picture__is_a_png() -> None:
    assert picture_png(GRID, SUMMARIES).startswith(b"\x89PNG")


def test_throughput__by_windows() -> None:
    times, mbit = throughput(done(2.0), window_s=1.0)
    assert times == [0.5, 1.5]
    assert mbit == pytest.approx([8e-6 * (1 << 19)] * 2)
    assert throughput(done(2.0), window_s=0.75) == throughput(done(2.0), window_s=1.0)  # no short one at the end
    assert throughput(hung(), window_s=1.0)[1][-1] == 0.0  # nothing arrived in the end
    assert throughput(done(0.0), window_s=1.0) == ([], [])


def test_csv__a_line_for_each_cell_and_flow() -> None:
    cells = list(csv.DictReader(io.StringIO(cells_csv(outcomes()))))
    assert len(cells) == len(list(GRID.cells()))
    assert {cell["state"] for cell in cells} == {"ok", "timeout", "n/a", "failed"}
    flows = list(csv.DictReader(io.StringIO(flows_csv(outcomes()))))
    assert len(flows) == sum(len(outcome.flows) for outcome in outcomes().values())
    assert {flow["seconds"] for flow in flows} == {"2.0", "3.0", ""}


def test_json__has_the_points() -> None:
    document = json.loads(as_json({"points": [summary.to_dict() for summary in SUMMARIES]}))
    assert document["points"][0]["slowdown_p99"] == 4.0


def test_write__whole_or_not_at_all(tmp_path: Path) -> None:
    write(tmp_path / "made" / "file", "text")
    assert (tmp_path / "made" / "file").read_text() == "text"
    with pytest.raises(ResultsError, match=r"made/file/below: "):
        write(tmp_path / "made" / "file" / "below", "text")


def test_table__a_line_for_each_point() -> None:
    text = "\n".join(table(GRID, SUMMARIES))
    assert text.count("n/a") == 4 * 6
    assert "timeout: stopped after 5 s" in text


def test_estimate__of_the_same_workload_and_transport_or_of_all() -> None:
    cells = list(GRID.cells())
    estimate = Estimate()
    assert estimate.left_s(cells) is None
    estimate.add(cells[0], took_s=1.0)
    assert estimate.left_s(cells[:2]) == 2.0
    estimate.add(cells[1], took_s=3.0)
    assert estimate.left_s(cells[:3]) == 1.0 + 3.0 + 2.0
    assert (clock(None), clock(125.4)) == ("-:--", "2:05")


def test_screen__a_line_for_what_was_measured() -> None:
    cells = list(GRID.cells())
    console = Console(record=True, width=200)
    with Screen(console, cells) as screen:
        for cell, outcome in outcomes().items():
            screen.begins(cell)
            screen.ended(cell, outcome, took_s=None if cell.seed == 1 else 1.0)
    text = console.export_text()
    assert len(text.splitlines()) == sum(cell.seed == 2 for cell in cells)
    line = next(line for line in text.splitlines() if "dead, bulk, seed 2: cubic" in line)
    assert line.split()[0] == "timeout"
    assert str(Cell("two", 2, "clean", "bulk", "srd")) == "two, clean, bulk, seed 2: srd"
