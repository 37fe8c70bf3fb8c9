"""A topology as an SVG drawing: a tree from left to right, one column for each level, one row for each host."""

from __future__ import annotations

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


@dataclass(slots=True)
class _Pen:
    """The position of the next host, and the elements drawn so far."""

    columns: list[float]
    widths: list[float]
    shapes: list[str]
    row: float = TOP + PADDING


def drawing(whole: Branch) -> str:
    """Return an <svg> element for a page that styles `.level-N`, `.link` and `.head`."""
    levels = _levels(whole)
    widths = [max(len(branch.name) for branch in [*whole.at(level)]) * CHARACTER + 2 * PADDING for level in levels]
    widths = [
        max(width, len(short_name(level)) * CHARACTER + PADDING) for width, level in zip(widths, levels, strict=True)
    ]
    columns = [PADDING + sum(widths[:index]) + GAP * index for index in range(len(levels))]
    pen = _Pen(columns, widths, [])
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


def _draw(pen: _Pen, branch: Branch, *, depth: int) -> float:
    """Draw the children of `branch`, then itself at their middle; return its row."""
    rows = [_draw(pen, child, depth=depth + 1) for child in branch.children]
    if rows:
        row = (rows[0] + rows[-1]) / 2
    else:
        row, pen.row = pen.row, pen.row + ROW
    x, width = pen.columns[depth], pen.widths[depth]
    for below in rows:
        end = pen.columns[depth + 1]
        middle = (x + width + end) / 2
        pen.shapes.append(
            f'<path class="link" d="M{x + width:.1f} {row:.1f}C{middle:.1f} {row:.1f} {middle:.1f} {below:.1f} '
            f'{end:.1f} {below:.1f}"/>'
        )
    count = "" if branch.level == HOSTNAME_LABEL else f", hosts in it: {len(branch.nodes)}"
    title = escape(f"{short_name(branch.level)} {branch.name}{count}")
    shade = "host" if branch.level == HOSTNAME_LABEL else f"level-{depth + 1}"
    pen.shapes.append(
        f'<g class="{shade}"><title>{title}</title><rect x="{x:.1f}" y="{row - BOX / 2:.1f}" width="{width:.1f}" '
        f'height="{BOX}" rx="4"/><text x="{x + PADDING:.1f}" y="{row + 4:.1f}">{escape(branch.name)}</text></g>'
    )
    return row
