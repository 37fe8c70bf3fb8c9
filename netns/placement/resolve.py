"""Resolve a request for a tree: levels become indices, mistakes become `Unplaceable`s."""

from __future__ import annotations

from collections.abc import Sequence

from netns.placement.choose import ResolvedRequest
from netns.placement.model import PlacementRequest, Profile, Slice, Unplaceable


def resolve(
    request: PlacementRequest, *, levels: Sequence[str], profile: Profile, leaders: int
) -> ResolvedRequest | Unplaceable:
    """Resolve `request` for a topology with `levels`; the messages are Kueue's if it has one."""
    if request.count < 1:
        return Unplaceable("count", f"count: {request.count} pods; request at least one", argument=str(request.count))
    wrong = _wrong_size(request)
    if wrong is not None:
        return wrong
    level_name = requested_level(request, levels)
    if level_name not in levels:
        return Unplaceable("unknown_level", f"no requested topology level: {level_name}", argument=level_name)
    slices = request.slices or (Slice(levels[-1], 1),)
    outer = slices[0]
    if outer.level not in levels:
        return Unplaceable(
            "unknown_slice_level", f"no requested topology level for slices: {outer.level}", argument=outer.level
        )
    level, slice_level = levels.index(level_name), levels.index(outer.level)
    if level > slice_level:
        return Unplaceable(
            "slice_above_podset",
            f"podset slice topology {outer.level} is above the podset topology {level_name}",
            argument=outer.level,
        )
    inner = _inner(slices if profile.multi_layer else slices[:1], levels)
    if isinstance(inner, Unplaceable):
        return inner
    unconstrained = request.mode in ("unconstrained", "implied", "slice_only")
    return ResolvedRequest(
        count=request.count,
        level=level,
        slice_size=outer.size,
        slice_level=slice_level,
        inner=inner,
        leaders=leaders,
        required=request.mode == "required",
        unconstrained=unconstrained,
        least_free=unconstrained and profile.mixed,
        scored=profile.affinity_preferred,
    )


def requested_level(request: PlacementRequest, levels: Sequence[str]) -> str:
    """Return the level at which the pods of `request` must, or should, lie together; "" if it is missing.

    Without a level, slices may lie anywhere: they are placed in the whole topology, single pods at the lowest level.
    """
    if request.mode in ("required", "preferred"):
        return request.level or ""
    return levels[0] if request.slices else levels[-1]


def _wrong_size(request: PlacementRequest) -> Unplaceable | None:
    for each in request.slices:
        if not each.size or each.size < 1:
            return Unplaceable(
                "slice_size",
                "slice topology requested, but slice size not provided: "
                f"{each.level} has size {each.size}; it must be at least 1",
                argument=str(each.size),
            )
    if request.slices and request.count % request.slices[0].size:
        return Unplaceable(
            "slice_size",
            f"slice size {request.slices[0].size} must evenly divide {request.count} pods",
            argument=str(request.slices[0].size),
        )
    return None


def _inner(slices: Sequence[Slice], levels: Sequence[str]) -> dict[int, int] | Unplaceable:
    """Return the sizes of the nested slices by level; levels between two slices have the inner one's size."""
    sizes: dict[int, int] = {}
    above = slices[0]
    for layer in slices[1:]:
        if layer.level not in levels:
            return Unplaceable(
                "unknown_inner_level",
                f"no requested topology level for additional slice layer: {layer.level}",
                argument=layer.level,
            )
        first, last = levels.index(above.level) + 1, levels.index(layer.level)
        if last < first:
            return Unplaceable(
                "inner_not_below",
                f"additional slice layer topology {layer.level} must be at a lower level than {above.level}",
                argument=layer.level,
            )
        if above.size % layer.size:
            return Unplaceable(
                "inner_not_dividing",
                f"additional slice layer size {layer.size} must evenly divide parent layer size {above.size}",
                argument=str(layer.size),
            )
        sizes.update(dict.fromkeys(range(first, last + 1), layer.size))
        above = layer
    return sizes
