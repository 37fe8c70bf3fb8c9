"""What commands print for people: tables, fields, a result in words."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table

from netns.base.output import print_json
from netns.base.printable import printable

PIPE_COLUMNS: Final = 1_000_000
"""Output to another program is not wrapped at a terminal's width."""


def table(*headings: str, text: Collection[str] | None = None) -> Table:
    """Return a table without lines, whose first column is never wrapped.

    `text`: the headings of left-aligned columns besides the first, where the others are numbers; None: all.
    """
    made = Table(box=None, pad_edge=False, header_style="bold")
    for index, heading in enumerate(headings):
        is_text = index == 0 or text is None or heading in text
        made.add_column(heading, justify="left" if is_text else "right", overflow="fold", no_wrap=index == 0)
    return made


def console() -> Console:
    """Return a console for text that may look like markup."""
    made = Console(highlight=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = PIPE_COLUMNS
    return made


def print_table(made: RenderableType) -> None:
    """Print a table, or several."""
    console().print(made)


def show_screens(screens: Iterable[RenderableType], *, terminal: Console, is_lasting: bool = True) -> None:
    """Show each in place of the one before on a terminal; elsewhere print each.

    `is_lasting`: what the terminal showed comes back at the end; else the last one stays.
    """
    if not terminal.is_terminal:
        for screen in screens:
            terminal.print(screen)
        return
    with Live(console=terminal, auto_refresh=False, screen=is_lasting) as live:
        for screen in screens:
            live.update(screen, refresh=True)


def count(things: Sequence[object], one: str, many: str | None = None) -> str:
    """Return a number with its noun: "1 host", "2 switches"."""
    return f"{len(things)} {one if len(things) == 1 else many or one + 's'}"


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
        print(text, flush=True)


def print_fields(fields: Mapping[str, object]) -> None:
    """Print a line for each field."""
    width = max((len(name) for name in fields), default=0)
    for name, value in fields.items():
        print(f"{printable(name):{width}}  {cell(value)}", flush=True)
