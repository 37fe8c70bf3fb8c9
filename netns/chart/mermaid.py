"""A topology as a Mermaid flowchart.

Mermaid refuses more than 500 edges and 50,000 characters by default, so that hosts of a large topology are drawn as one
box for each lowest layer, with their number.
"""

from __future__ import annotations

import re
from typing import Final

from netns.chart.branches import Branch
from netns.inventory.layers import short_name
from netns.inventory.nodes import HOSTNAME_LABEL

TITLE: Final = "Cluster Topology"
MAX_EDGES: Final = 500
MAX_CHARACTERS: Final = 50_000

_NOT_IN_ID: Final = re.compile(r"[^A-Za-z0-9]+")


def mermaid(whole: Branch) -> str:
    """Return the text of a flowchart from the top down; the same for the same nodes."""
    text = _flowchart(whole, with_hosts=True)
    edges = sum(1 for _ in whole.walk()) - 1
    return text if edges <= MAX_EDGES and len(text) <= MAX_CHARACTERS else _flowchart(whole, with_hosts=False)


def _flowchart(whole: Branch, *, with_hosts: bool) -> str:
    ids: dict[tuple[str, ...], str] = {(): "A"}
    taken = {"A"}
    lines = ["flowchart TD", f'  A["{TITLE}<br/>{_count(whole)}"]']
    for branch in whole.walk():
        if branch is whole:
            continue
        above = ids[branch.path[:-1]]
        if branch.level == HOSTNAME_LABEL and not with_hosts:
            continue
        ids[branch.path] = _new_id(branch, taken)
        lines.append(f"  {above} --> {ids[branch.path]}{_box(branch)}")
        if not with_hosts and branch.children and branch.children[0].level == HOSTNAME_LABEL:
            lines.append(f'  {ids[branch.path]} --> {ids[branch.path]}_hosts(["{_count(branch)}"])')
    return "\n".join(lines) + "\n"


def _new_id(branch: Branch, taken: set[str]) -> str:
    """Return a descriptive and unique id: values may repeat under other parents."""
    kind = "N" if branch.level == HOSTNAME_LABEL else f"L{len(branch.path)}"
    base = f"{kind}_{_NOT_IN_ID.sub('_', branch.name)}"
    found, number = base, 1
    while found in taken:
        number += 1
        found = f"{base}_{number}"
    taken.add(found)
    return found


def _box(branch: Branch) -> str:
    text = _escaped(branch.name)
    if branch.level == HOSTNAME_LABEL:
        return f'(["{text}"])'
    return f'["{_escaped(short_name(branch.level))}<br/>{text}"]'


def _escaped(text: str) -> str:
    """Make one line, with Mermaid's own entities for what would end a label or start a tag."""
    text = " ".join(text.split())
    for character, entity in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;")):
        text = text.replace(character, entity)
    return text


def _count(branch: Branch) -> str:
    number = len(branch.nodes)
    return f"{number} host" if number == 1 else f"{number} hosts"
