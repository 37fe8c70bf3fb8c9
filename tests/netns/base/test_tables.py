"""netns.base.tables: counts and columns."""

from __future__ import annotations

import pytest

from netns.base.tables import count, print_table, table


def test_count() -> None:
    assert [count(things, "switch", "switches") for things in ([], [1], [1, 2])] == [
        "0 switches",
        "1 switch",
        "2 switches",
    ]
    assert count([1, 2], "host") == "2 hosts"


def test_print_table__nothing_is_markup(capsys: pytest.CaptureFixture[str]) -> None:
    rows = table("name", "value")
    rows.add_row("[red]x[/red]", "1")
    print_table(rows)
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [["name", "value"], ["[red]x[/red]", "1"]]


def test_print_table__is_not_wrapped_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    rows = table("name", "value")
    rows.add_row("x" * 100, "y" * 100)
    print_table(rows)
    assert f"{'x' * 100}  {'y' * 100}" in capsys.readouterr().out.splitlines()


def test_table__numbers_are_right_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    rows = table("name", "count", "state", text=("state",))
    rows.add_row("a", "1", "up")
    rows.add_row("b", "1000", "gone")
    print_table(rows)
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "name  count  state",
        "a         1  up",
        "b      1000  gone",
    ]
