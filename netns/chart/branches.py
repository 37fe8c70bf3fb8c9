"""Nodes as the tree of the layers that they share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from netns.inventory.layers import levels_of, path_of
from netns.inventory.nodes import Node

_DIGITS: Final = re.compile(r"([0-9]+)")


@dataclass(frozen=True, slots=True)
class Branch:
    """A part of the network, or a host, with its children."""

    level: str
    """Its label key; "" for the whole."""

    path: tuple[str, ...]
    """Label values from the widest level down to its own."""

    children: tuple[Branch, ...]
    nodes: tuple[Node, ...]
    """All hosts in it."""

    @property
    def name(self) -> str:
        """Its own label value."""
        return self.path[-1] if self.path else ""

    def walk(self) -> Iterator[Branch]:
        """Yield this branch and all below it, each before its children."""
        yield self
        for child in self.children:
            yield from child.walk()

    def at(self, level: str) -> list[Branch]:
        """Return the branches of one level."""
        return [branch for branch in self.walk() if branch.level == level]


def branches(nodes: Sequence[Node]) -> Branch:
    """Return the tree of `nodes`, its parts by label value, h9 before h10. Raises what `levels_of` does."""
    levels = levels_of(nodes)
    ordered = sorted(nodes, key=lambda node: [_in_order(value) for value in path_of(node, levels)])
    return Branch("", (), _children(ordered, levels, depth=0), tuple(ordered))


def _in_order(value: str) -> tuple[tuple[str | int, ...], str]:
    """Return what orders a label value: text and numbers by turns; then as it is written, as 01 is not 1."""
    parts = _DIGITS.split(value)
    return tuple(int(part) if index % 2 else part for index, part in enumerate(parts)), value


def _children(nodes: Sequence[Node], levels: Sequence[str], *, depth: int) -> tuple[Branch, ...]:
    if depth == len(levels):
        return ()
    groups: dict[str, list[Node]] = {}
    for node in nodes:
        groups.setdefault(node.labels[levels[depth]], []).append(node)
    return tuple(
        Branch(
            levels[depth],
            path_of(members[0], levels[: depth + 1]),
            _children(members, levels, depth=depth + 1),
            tuple(members),
        )
        for members in groups.values()
    )
