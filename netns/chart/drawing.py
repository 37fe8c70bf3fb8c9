"""A topology as an SVG drawing: a tree from left to right, one column for each level, one row for each host.

A domain of several switches, of which the topology says the names, has a box for each, and a line from each to all that
is below: so they are cabled. Domains of more than MAX_BOXES switches are one box, with a name such as spine1-spine64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Final

from netns.chart.branches import Branch
from netns.inventory.layers import short_name
from netns.inventory.nodes import HOSTNAME_LABEL

ROW: Final = 26
"""Pixels from host to host."""

BOX: Final = 20
"""Height of a box."""

GAP: Final = 56
"""Pixels between two columns, for the lines."""

CHARACTER: Final = 7.2
"""Width of a character of the drawing's font (12 px, monospaced)."""

TOP: Final = 34
"""Space for the names of the levels."""

PADDING: Final = 10

MAX_BOXES: Final = 16
"""Switches of a domain; more lines than theirs cannot be told apart."""

Switches = Mapping[str, tuple[str, ...]]
"""By the name of a domain."""


@dataclass(slots=True)
class _Pen:
    """The position of the next host, and the elements drawn so far."""

    columns: list[float]
    widths: list[float]
    switches: Switches
    shapes: list[str]
    row: float = TOP + PADDING


def drawing(whole: Branch, *, switches: Switches) -> str:
    """Return an <svg> element for a page that styles `.level-N`, `.link` and `.head`."""
    levels = _levels(whole)
    names = ([name for branch in whole.at(level) for name in _names(branch, switches)] for level in levels)
    widths = [max(map(len, each)) * CHARACTER + 2 * PADDING for each in names]
    widths = [
        max(width, len(short_name(level)) * CHARACTER + PADDING) for width, level in zip(widths, levels, strict=True)
    ]
    columns = [PADDING + sum(widths[:index]) + GAP * index for index in range(len(levels))]
    pen = _Pen(columns, widths, switches, [])
    for index, level in enumerate(levels):
        pen.shapes.append(f'<text class="head" x="{columns[index]:.0f}" y="20">{escape(short_name(level))}</text>')
    for branch in whole.children:
        _draw(pen, branch, depth=0)
    width, height = columns[-1] + widths[-1] + PADDING, pen.row + PADDING
    shapes = "\n".join(pen.shapes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="topology">\n{shapes}\n</svg>'
    )


def _levels(whole: Branch) -> list[str]:
    levels, branch = [], whole
    while branch.children:
        branch = branch.children[0]
        levels.append(branch.level)
    return levels


def _names(branch: Branch, switches: Switches) -> tuple[str, ...]:
    """Return the names of a branch's boxes."""
    own = switches.get(branch.name, ()) if branch.level != HOSTNAME_LABEL else ()
    return own if 1 < len(own) <= MAX_BOXES else (branch.name,)


def _rows(branch: Branch, switches: Switches) -> int:
    """Return how many rows a branch needs, with all below it."""
    return max(len(_names(branch, switches)), sum(_rows(child, switches) for child in branch.children))


def _draw(pen: _Pen, branch: Branch, *, depth: int) -> list[float]:
    """Draw the children of `branch`, then itself in the middle of its rows; return the rows of its boxes."""
    names, top, rows = _names(branch, pen.switches), pen.row, _rows(branch, pen.switches)
    pen.row += ROW * (rows - sum(_rows(child, pen.switches) for child in branch.children)) / 2 if branch.children else 0
    below = [row for child in branch.children for row in _draw(pen, child, depth=depth + 1)]
    pen.row = top + ROW * rows
    own = [top + ROW * (index + (rows - len(names)) / 2) for index in range(len(names))]
    count = "" if branch.level == HOSTNAME_LABEL else f", hosts in it: {len(branch.nodes)}"
    for name, row in zip(names, own, strict=True):
        _draw_links(pen, row, below, depth=depth)
        title = f"{short_name(branch.level)} {branch.name}{'' if name == branch.name else f', {name}'}{count}"
        _draw_box(pen, name, row, depth=depth, title=title, is_host=branch.level == HOSTNAME_LABEL)
    return own


def _draw_links(pen: _Pen, row: float, below: list[float], *, depth: int) -> None:
    begin = pen.columns[depth] + pen.widths[depth]
    for other in below:
        end = pen.columns[depth + 1]
        middle = (begin + end) / 2
        pen.shapes.append(
            f'<path class="link" d="M{begin:.1f} {row:.1f}C{middle:.1f} {row:.1f} {middle:.1f} {other:.1f} '
            f'{end:.1f} {other:.1f}"/>'
        )


def _draw_box(pen: _Pen, name: str, row: float, *, depth: int, title: str, is_host: bool) -> None:
    x, shade = pen.columns[depth], "host" if is_host else f"level-{depth + 1}"
    pen.shapes.append(
        f'<g class="{shade}"><title>{escape(title)}</title><rect x="{x:.1f}" y="{row - BOX / 2:.1f}" '
        f'width="{pen.widths[depth]:.1f}" height="{BOX}" rx="4"/><text x="{x + PADDING:.1f}" y="{row + 4:.1f}">'
        f"{escape(name)}</text></g>"
    )
