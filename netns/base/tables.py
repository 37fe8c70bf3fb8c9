"""Tables in the output of commands."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table

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
