"""Tables and counts in the output of `srd-lab`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

UNFOLDED: Final = 1_000_000
"""Columns; tables are as wide as they need to be."""


def table(*columns: str) -> Table:
    """Return a table without lines; the first column is never wrapped."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        made.add_column(column, overflow="fold", no_wrap=index == 0)
    return made


def print_table(made: Table) -> None:
    """Print without markup. Output to another program is not wrapped at a terminal's width."""
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = UNFOLDED
    console.print(made)


def count(things: Sequence[object], one: str, many: str | None = None) -> str:
    """Return a number with its noun: "1 host", "2 switches"."""
    return f"{len(things)} {one if len(things) == 1 else many or one + 's'}"
