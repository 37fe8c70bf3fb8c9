"""Why a request does not fit, in Kueue's words: the available room, and the exclusions by reason."""

from __future__ import annotations

from collections.abc import Sequence

from netns.placement.choose import ResolvedRequest, Shortfall
from netns.placement.counting import Excluded
from netns.placement.domain import Domain
from netns.placement.model import Slice, Unplaceable
from netns.placement.tree import Tree


def not_fit(
    tree: Tree, ask: ResolvedRequest, short: Shortfall, *, excluded: Excluded, topology: str, slices: Sequence[Slice]
) -> Unplaceable:
    """`topology "x" allows to fit only 1 out of 2 pod(s). Total nodes: 4; excluded: resource "cpu": 3`."""
    unit = "pod" if ask.slice_size == 1 else "slice"
    layers = _layers(tree, ask, short.level, slices) if ask.inner else ()
    if layers:
        fits = "".join(f"; {fit}/{wanted} slice(s) fit on level {level}" for level, fit, wanted in layers)
        message = f'topology "{topology}" doesn\'t allow to fit{fits}'
    elif short.fit == 0:
        message = f'topology "{topology}" doesn\'t allow to fit any of {ask.slices} {unit}(s)'
    else:
        message = f'topology "{topology}" allows to fit only {short.fit} out of {ask.slices} {unit}(s)'
    reasons = dict(excluded.reasons)
    if reasons:
        counted = ", ".join(sorted(f"{_quoted(reason)}: {count}" for reason, count in reasons.items()))
        message += f". Total nodes: {excluded.nodes}; excluded: {counted}"
    return Unplaceable(
        "not_fit",
        message,
        fit=short.fit,
        wanted=ask.slices,
        unit="pod" if ask.slice_size == 1 else "slice",
        total_nodes=excluded.nodes if reasons else None,
        excluded=reasons,
        layers=layers,
    )


def _quoted(reason: str) -> str:
    """Quote the resource of `resource cpu` as in messages: resource "cpu"."""
    word, _, name = reason.partition(" ")
    return f'{word} "{name}"' if name else word


def _layers(tree: Tree, ask: ResolvedRequest, level: int, slices: Sequence[Slice]) -> tuple[tuple[str, int, int], ...]:
    """For nested slices: how many of each layer fit into the domain of `level` that holds most."""
    best = min(tree.at(level), key=lambda part: (-part.slices, ",".join(part.values)))
    return tuple(
        (each.level, _count(best, tree.levels.index(each.level) - level, each.size), ask.count // each.size)
        for each in slices
    )


def _count(part: Domain, levels_below: int, size: int) -> int:
    """Return how many slices of `size` fit into the domains so many levels below `part`."""
    if levels_below <= 0:
        return part.pods // size
    return sum(_count(child, levels_below - 1, size) for child in part.children)
