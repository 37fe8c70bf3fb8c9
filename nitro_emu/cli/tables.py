"""Tables in the output of the commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import click
from rich.console import Console
from rich.table import Table

from netns.base.printable import printable

PIPE_COLUMNS: Final = 1_000_000
"""Output to another program is not wrapped at a terminal's width."""


def table(*columns: str) -> Table:
    """Return a table without lines; the first column is left aligned, numbers are not."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        made.add_column(column, justify="right" if index else "left", no_wrap=True)
    return made


def print_table(made: Table) -> None:
    """Print without markup."""
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = PIPE_COLUMNS
    console.print(made)


def table_of(rows: Mapping[str, Mapping[str, object]], *, first: str) -> Table:
    """Return a table of rows by name, with a column for each key that any of them has."""
    columns = list(dict.fromkeys(key for row in rows.values() for key in row))
    made = table(first, *columns)
    for name, row in rows.items():
        made.add_row(printable(name), *(cell(row.get(column, "")) for column in columns))
    return made


def cell(value: object) -> str:
    """Return a value as a cell of a table."""
    if isinstance(value, Mapping):
        return " ".join(f"{key}={cell(item)}" for key, item in value.items())
    if isinstance(value, str) or not isinstance(value, Sequence):
        return printable("" if value is None else value)
    return " ".join(cell(item) for item in value)


def print_fields(fields: Mapping[str, object]) -> None:
    """Print a line for each field."""
    width = max((len(name) for name in fields), default=0)
    for name, value in fields.items():
        click.echo(f"{printable(name):{width}}  {cell(value)}")
