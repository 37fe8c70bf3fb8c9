"""netns.placement.resolve: every invalid request, with Kueue's message if it has one."""

from __future__ import annotations

import pytest

from netns.inventory.nodes import HOSTNAME_LABEL
from netns.placement.choose import ResolvedRequest
from netns.placement.model import DEFAULT_PROFILE, Kind, PlacementRequest, Profile, Slice, Unplaceable
from netns.placement.resolve import resolve
from tests.netns.placement_cluster import BLOCK, LEVELS, RACK


def resolved(request: PlacementRequest, profile: Profile = DEFAULT_PROFILE) -> ResolvedRequest:
    found = resolve(request, levels=LEVELS, profile=profile, leaders=0)
    assert isinstance(found, ResolvedRequest), str(found)
    return found


@pytest.mark.parametrize(
    ("request_", "kind", "message"),
    [
        (PlacementRequest(count=0), "count", "count: 0 pods; request at least one"),
        (PlacementRequest(count=-3), "count", "count: -3 pods; request at least one"),
        (PlacementRequest(mode="required", level="zone"), "unknown_level", "no requested topology level: zone"),
        (PlacementRequest(mode="required"), "unknown_level", "no requested topology level: "),
        (
            PlacementRequest(slices=(Slice("zone", 1),)),
            "unknown_slice_level",
            "no requested topology level for slices: zone",
        ),
        (
            PlacementRequest(mode="required", level=RACK, slices=(Slice(BLOCK, 1),)),
            "slice_above_podset",
            f"podset slice topology {BLOCK} is above the podset topology {RACK}",
        ),
        (
            PlacementRequest(slices=(Slice(HOSTNAME_LABEL, 0),)),
            "slice_size",
            f"slice topology requested, but slice size not provided: {HOSTNAME_LABEL} has size 0",
        ),
        (
            PlacementRequest(count=4, slices=(Slice(HOSTNAME_LABEL, -2),)),
            "slice_size",
            f"slice topology requested, but slice size not provided: {HOSTNAME_LABEL} has size -2",
        ),
        (
            PlacementRequest(count=5, slices=(Slice(HOSTNAME_LABEL, 2),)),
            "slice_size",
            "slice size 2 must evenly divide 5 pods",
        ),
        (
            PlacementRequest(count=4, mode="slice_only", slices=(Slice(RACK, 4), Slice("zone", 2))),
            "unknown_inner_level",
            "no requested topology level for additional slice layer: zone",
        ),
        (
            PlacementRequest(count=4, mode="slice_only", slices=(Slice(RACK, 4), Slice(RACK, 2))),
            "inner_not_below",
            f"additional slice layer topology {RACK} must be at a lower level than {RACK}",
        ),
        (
            PlacementRequest(count=4, mode="slice_only", slices=(Slice(RACK, 4), Slice(HOSTNAME_LABEL, 3))),
            "inner_not_dividing",
            "additional slice layer size 3 must evenly divide parent layer size 4",
        ),
    ],
)
def test_resolve__bad_flow(request_: PlacementRequest, kind: Kind, message: str) -> None:
    found = resolve(request_, levels=LEVELS, profile=DEFAULT_PROFILE, leaders=0)
    assert isinstance(found, Unplaceable)
    assert found.kind == kind
    assert found.message.startswith(message)


def test_resolve__nested_slices_count_on_all_levels_between_them() -> None:
    request = PlacementRequest(count=8, mode="slice_only", slices=(Slice(BLOCK, 8), Slice(HOSTNAME_LABEL, 2)))
    found = resolved(request)
    assert (found.slices, found.slice_level, found.inner) == (1, 0, {1: 2, 2: 2})
    assert resolved(request, Profile(multi_layer=False)).inner == {}
