"""Why a job has no placement, in the words of its file: ranks, layers, the name of the inventory.

`Unplaceable` has Kueue's message, for those who compare with Kueue. A job's author wrote `ranks`, and no topology
called "default".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from netns.inventory.layers import short_name
from netns.inventory.nodes import PODS
from netns.placement.model import PlacementRequest, Unplaceable

IMPOSSIBLE: Final = ("not_fit", "no_domains_at_level", "no_replacement", "stale")
"""Kinds of failures of valid jobs; the others are mistakes in the job."""


def explain(found: Unplaceable, *, request: PlacementRequest, where: str) -> str:
    """Return why `request` (the ranks without their leader) cannot be placed; `where` names the inventory."""
    match found.kind:
        case "not_fit":
            return _not_fit(found, request, where) + _excluded(found.excluded, found.total_nodes)
        case "no_domains_at_level":
            return f"none of the nodes of {where} is ready and schedulable"
        case "no_replacement":
            return f"{where} has no host for the ranks of {found.argument} where their slices would be whole again"
        case "stale":
            return f"{found.argument} runs ranks of the job, but is no ready node of {where}"
        case "slice_above_podset":
            level = short_name(request.level or "")
            return f"slices[0].layer: {short_name(found.argument)} is wider than {level}, in which all ranks must lie"
        case "inner_not_below":
            return f"slices: {short_name(found.argument)} is not inside the layer of the slice around it"
        case _:
            return str(found)


def _not_fit(found: Unplaceable, request: PlacementRequest, where: str) -> str:
    fit, wanted = found.fit or 0, found.wanted or 0
    within = "no host" if request.level is None else f"no {short_name(request.level)}"
    if found.layers:
        fits = [
            f"{each_fit} of {each_wanted} slices for each {short_name(level)}"
            for level, each_fit, each_wanted in found.layers
        ]
        return f"{where} has no room for the nested slices of {request.count} ranks: {'; '.join(fits)}"
    if found.unit == "slice":
        outer = request.slices[0]
        what = f"{wanted} slices of {outer.size} ranks, each in one {short_name(outer.level)}"
    else:
        what = f"{wanted} rank{'s' if wanted > 1 else ''}"
    if fit >= wanted:
        return f"{where} has room for {what}, but not for the leader beside them"
    if request.mode == "required":
        return f"{within} of {where} has room for {what}; the most that fit into one is {fit}"
    return f"{where} has room for only {fit} of {what}" if fit else f"{where} has no room for any of {what}"


def _excluded(reasons: Mapping[str, int], total: int | None) -> str:
    """Return the nodes that have no room for a single rank, by the reason."""
    if not reasons:
        return ""
    listed = ", ".join(sorted(f"{count} {_why(reason)}" for reason, count in reasons.items()))
    return f" (of {total} nodes, without room for any rank: {listed})"


def _why(reason: str) -> str:
    kind, _, name = reason.partition(" ")
    match kind:
        case "resource":
            return "full" if name == PODS else f"short of {name}"
        case "taint":
            return f"tainted {name}"
        case "nodeSelector":
            return "not selected by node_selector"
        case "affinity":
            return "excluded by node_affinity"
        case _:
            return "outside the domain that the ranks must stay in"
