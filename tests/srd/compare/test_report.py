"""What is written and shown: every cell is in it, also what did not reach its end."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from srd.compare.errors import ResultsError
from srd.compare.grid import TRANSPORTS, Cell, Grid
from srd.compare.outcome import CellOutcome, CellProgress, CellState
from srd.compare.page import render
from srd.compare.plots import panel_svgs, picture_png, pictures, throughput
from srd.compare.results import cells_csv, cells_json, flows_csv, write
from srd.compare.screen import Screen, remarks, table
from srd.compare.summary import summarize
from tests.srd.compare.cases import FILE_GRID, GRID, done, hung, outcomes
from tests.terminal import Terminal

SUMMARIES = summarize(GRID, outcomes())
FILE_SUMMARIES = summarize(FILE_GRID, outcomes(FILE_GRID))
LATE = "TCP cubic: until 50 s"
VOID = {"meta", "br", "link", "img", "hr"}


class Balanced(HTMLParser):
    """Collects the text; asserts that every element is closed, that ids are unique and nothing is fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("src", "href", "xlink:href"):
                assert value is not None
                assert value.startswith("#"), f"{name}={value} leaves the page"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("p", "li"):
            while self.open[-1] in ("p", "li"):
                self.open.pop()
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def page(grid: Grid = GRID) -> str:
    return page_of(grid.name)


@cache
def page_of(name: str) -> str:
    grid = FILE_GRID if name == FILE_GRID.name else GRID
    report = {
        "grid": grid.describe(),
        "unavailable": {"bbr": "tcp: this kernel has no congestion control 'bbr'"},
        "environment": {"cpu_count": 2, "kernel": "<6.1>"},
        "started_at": "2026-01-01T00:00:00+00:00",
        "took_s": 12.0,
        "cells": cells_json(outcomes(grid)),
    }
    return render(grid, summarize(grid, outcomes(grid)), report=report)


def test_page__shows_every_point_and_why_one_is_missing() -> None:
    html = page()
    for name in TRANSPORTS.values():
        assert html.count(f"</span>{name}</td>") == 2 * 2 * 2
    assert "TCP BBR could not be measured: tcp: this kernel has no congestion control &#39;bbr&#39;." in html
    assert html.count("timeout: stopped after 5 s with 50 % received") == 2
    assert html.count("failed: h1: boom") == 4
    assert html.count('viewBox="0 0 295.2 216"') == 2 * 2 * 2  # workloads, pictures, conditions


def test_page__has_a_table_under_each_plot_and_no_bounds() -> None:
    html = page(FILE_GRID)
    assert re.findall(r'<div class="panels">|<table>', html) == ['<div class="panels">', "<table>"] * 2
    assert "anted" not in html
    assert 'data-name="stall ms"' in html


def test_page__panels_of_a_row_have_the_same_axes() -> None:
    """A transport that stands for long is said to, and does not squeeze the others."""
    made = {
        cell: hung() if (cell.condition, cell.transport) == ("dead", "cubic") else done() for cell in FILE_GRID.cells()
    }
    made = {
        cell: replace(outcome, elapsed_s=50.0) if outcome.state != "ok" else outcome for cell, outcome in made.items()
    }
    for cell in [cell for cell in made if cell.condition == "clean"]:  # whose own axes would end lower
        made[cell] = replace(made[cell], progress=tuple((at_s, size // 3) for at_s, size in made[cell].progress))
    clean, dead = panel_svgs(
        summarize(FILE_GRID, made), pictures(FILE_GRID, "file")[1].draw, conditions=list(FILE_GRID.conditions)
    )
    texts = [[each for each in re.findall(r"<text[^>]*>([^<]*)</text>", svg) if each.strip()] for svg in (clean, dead)]
    assert [text for text in texts[0] if text != "clean"] == [text for text in texts[1] if text not in ("dead", LATE)]
    assert LATE in texts[1]
    assert {"time since the start, s", "received, Mbit/s"} < set(texts[0])


def test_page__is_self_contained_and_escapes() -> None:
    html = page()
    assert not re.search(r'(src|href)="(?!#)', html)
    assert "&lt;6.1&gt;" in html
    assert "a &lt;remark&gt;" in html
    assert "None" not in html


@pytest.mark.parametrize("grid", [GRID, FILE_GRID], ids=["flows", "a file"])
def test_page__is_well_formed(grid: Grid) -> None:
    parser = Balanced()
    parser.feed(page(grid))
    parser.close()
    assert parser.open == []
    assert len(parser.ids) == len(set(parser.ids))


def test_page__of_a_file_has_what_the_terminal_has() -> None:
    parser = Balanced()
    parser.feed(page(FILE_GRID))
    text = re.sub(r"\s+", " ", parser.text)
    for line in remarks(FILE_GRID, FILE_SUMMARIES):
        assert line in text
    for expected in (
        "One host sends a file of 1 MiB to one of another rack.",
        "dead the link between switches that carried most dies at 40 %, silently",
        "TAP pairs whose frames one process relays",
        "srd send",
        "2026-01-01T00:00:00+00:00, took 12 s",
    ):
        assert expected in text
    assert "One worker in each host" not in text
    assert 'aria-label="spine1 50 %, spine2 50 %"' in page(FILE_GRID)


@pytest.mark.parametrize("grid", [GRID, FILE_GRID], ids=["flows", "a file"])
def test_picture__is_a_png(grid: Grid) -> None:
    assert picture_png(grid, summarize(grid, outcomes(grid))).startswith(b"\x89PNG")


def test_picture__of_nothing_measured() -> None:
    missing = dict.fromkeys(FILE_GRID.cells(), CellOutcome(CellState.UNAVAILABLE, "not measured"))
    assert picture_png(FILE_GRID, summarize(FILE_GRID, missing)).startswith(b"\x89PNG")


def test_throughput__by_windows() -> None:
    times, (mbit,) = throughput([done(2.0)], window_s=1.0)
    assert times == [0.5, 1.5]
    assert mbit == pytest.approx([8e-6 * (1 << 19)] * 2)
    assert throughput([done(2.0)], window_s=0.75) == throughput([done(2.0)], window_s=1.0)  # no short one at the end
    assert throughput([hung()], window_s=1.0)[1][0][-1] == 0.0  # nothing arrived in the end
    assert throughput([done(0.0)], window_s=1.0) == ([], [[]])


def test_throughput__of_seeds_is_over_the_longest() -> None:
    times, rates = throughput([done(2.0), done(4.0)], window_s=1.0)
    assert times == [0.5, 1.5, 2.5, 3.5]
    assert rates[0] == pytest.approx([8e-6 * (1 << 19)] * 2 + [0.0] * 2)
    assert rates[1] == pytest.approx([8e-6 * (1 << 18)] * 4)


def test_csv__a_line_for_each_cell_and_flow() -> None:
    cells = list(csv.DictReader(io.StringIO(cells_csv(outcomes()))))
    assert len(cells) == len(list(GRID.cells()))
    assert {cell["state"] for cell in cells} == {"ok", "timeout", "n/a", "failed"}
    flows = list(csv.DictReader(io.StringIO(flows_csv(outcomes()))))
    assert len(flows) == sum(len(outcome.flows) for outcome in outcomes().values())
    assert {flow["seconds"] for flow in flows} == {"2.0", "3.0", ""}


def test_write__whole_or_not_at_all(tmp_path: Path) -> None:
    write(tmp_path / "made" / "file", "text")
    assert (tmp_path / "made" / "file").read_text() == "text"
    with pytest.raises(ResultsError, match=r"made/file/below: "):
        write(tmp_path / "made" / "file" / "below", "text")


def test_table__a_line_for_each_point() -> None:
    text = "\n".join(table(GRID, SUMMARIES))
    assert text.count("n/a") == 2 * (5 + 5)
    assert "timeout: stopped after 5 s with 50 % received (a <remark>)" in text
    assert "[bold]bulk[/bold] on two, relay, medians of 2 seeds: One host sends 1 MiB" in text


def test_table__of_a_file_fits_a_terminal() -> None:
    row = next(line for line in table(FILE_GRID, FILE_SUMMARIES) if "SRD" in line)
    assert row.split() == ["SRD", "4.2", "25", "%", "2.00", "1.00", "%", "12", "50", "50", "ok"]
    assert len(row) < 80


def test_screen__a_line_for_what_was_measured() -> None:
    cells = list(GRID.cells())
    console = Console(record=True, width=200)
    with Screen(console, cells) as screen:
        for cell, outcome in outcomes().items():
            screen.begins(cell)
            screen.progress(cell, CellProgress(0.0, 0, 1 << 20, ""))
            screen.ended(cell, outcome, took_s=None if cell.seed == 1 else 1.0)
    text = console.export_text()
    assert len(text.splitlines()) == sum(cell.seed == 2 for cell in cells)
    line = next(line for line in text.splitlines() if "dead, bulk, seed 2: cubic" in line)
    assert line.split()[0] == "timeout"
    assert "clean, bulk, seed 2: srd: 4.2 Mbit/s, 2.00 s, longest stall 12 ms" in text
    assert str(Cell("two", 2, "clean", "bulk", "srd")) == "two, clean, bulk, seed 2: srd"


def test_screen__on_a_terminal_the_rate_what_has_failed_and_the_time_left() -> None:
    cells = list(FILE_GRID.cells())
    outcome = next(iter(outcomes(FILE_GRID).values()))
    with Terminal() as terminal, Screen(Console(file=terminal.stream, width=200), cells) as screen:
        screen.begins(cells[0])
        screen.progress(cells[0], CellProgress(0.5, 1 << 19, 1 << 20, "fail leaf1-spine2"))
        terminal.wait_for(f"{cells[0]}: 50 %, 8.4 Mbit/s  fail leaf1-spine2")
        screen.ended(cells[0], outcome, took_s=60.0)
        terminal.wait_for(f"srd compare: 1 of {len(cells)}, {len(cells) - 1}:00 left")
