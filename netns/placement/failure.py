"""Kueue's message for a request that does not fit: the available room, and the exclusions by reason."""

from __future__ import annotations

from collections.abc import Sequence

from netns.placement.choose import ResolvedRequest, Shortfall
from netns.placement.counting import Excluded
from netns.placement.domain import Domain
from netns.placement.model import Slice, Unplaceable
from netns.placement.tree import Tree


def not_fit(
    tree: Tree,
    resolved: ResolvedRequest,
    short: Shortfall,
    *,
    excluded: Excluded,
    topology: str,
    slices: Sequence[Slice],
) -> Unplaceable:
    """`topology "x" allows to fit only 1 out of 2 pod(s). Total nodes: 4; excluded: resource "cpu": 3`."""
    unit = "pod" if resolved.slice_size == 1 else "slice"
    layers = _layers(tree, resolved, short.level, slices) if resolved.inner else ()
    if layers:
        fits = "".join(f"; {fit}/{wanted} slice(s) fit on level {level}" for level, fit, wanted in layers)
        message = f'topology "{topology}" doesn\'t allow to fit{fits}'
    elif short.fit == 0:
        message = f'topology "{topology}" doesn\'t allow to fit any of {resolved.slices} {unit}(s)'
    else:
        message = f'topology "{topology}" allows to fit only {short.fit} out of {resolved.slices} {unit}(s)'
    reasons = dict(excluded.reasons)
    if reasons:
        counted = ", ".join(sorted(f"{_quoted(reason)}: {count}" for reason, count in reasons.items()))
        message += f". Total nodes: {excluded.nodes}; excluded: {counted}"
    return Unplaceable(
        "not_fit",
        message,
        fit=short.fit,
        wanted=resolved.slices,
        unit="pod" if resolved.slice_size == 1 else "slice",
        total_nodes=excluded.nodes if reasons else None,
        excluded=reasons,
        layers=layers,
    )


def _quoted(reason: str) -> str:
    """Quote the resource of `resource cpu` as in messages: resource "cpu"."""
    kind, _, name = reason.partition(" ")
    return f'{kind} "{name}"' if name else kind


def _layers(
    tree: Tree, resolved: ResolvedRequest, level: int, slices: Sequence[Slice]
) -> tuple[tuple[str, int, int], ...]:
    """For nested slices: how many of each layer fit into the domain of `level` that holds most."""
    best = min(tree.at(level), key=lambda domain: (-domain.slices, ",".join(domain.values)))
    return tuple(
        (each.level, _count(best, tree.levels.index(each.level) - level, each.size), resolved.count // each.size)
        for each in slices
    )


def _count(domain: Domain, levels_below: int, size: int) -> int:
    """Return how many slices of `size` fit into the domains so many levels below `domain`."""
    if levels_below <= 0:
        return domain.pods // size
    return sum(_count(child, levels_below - 1, size) for child in domain.children)
