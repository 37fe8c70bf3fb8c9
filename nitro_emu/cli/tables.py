"""Tables in the output of the commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click
from rich.table import Table

from netns.base.output import print_json
from netns.base.printable import printable
from netns.base.tables import table


def table_of(rows: Mapping[str, Mapping[str, object]], *, first: str) -> Table:
    """Return a table of rows by name, with a column for each key that any of them has."""
    columns = list(dict.fromkeys(key for row in rows.values() for key in row))
    made = table(first, *columns, text=())
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


def print_result(found: Mapping[str, object], *, as_json: bool, text: str | None = None) -> None:
    """Print what a command has found: as JSON, or as a text, by default a line for each field."""
    if as_json:
        print_json(found)
    elif text is None:
        print_fields(found)
    else:
        click.echo(text)


def print_fields(fields: Mapping[str, object]) -> None:
    """Print a line for each field."""
    width = max((len(name) for name in fields), default=0)
    for name, value in fields.items():
        click.echo(f"{printable(name):{width}}  {cell(value)}")
