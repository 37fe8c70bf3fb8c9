"""netns.placement.explain: the words of a job's file."""

from __future__ import annotations

import pytest

from netns.inventory.nodes import layer_label
from netns.placement.explain import explain
from netns.placement.model import PlacementRequest, Slice, Unplaceable

RANKS = PlacementRequest("ring", count=8)
RACKS = PlacementRequest("ring", count=8, mode="required", level=layer_label(3))
SLICED = PlacementRequest("ring", count=8, mode="slice_only", slices=(Slice(layer_label(3), 4),))


def not_fit(fit: int, wanted: int, **more: object) -> Unplaceable:
    return Unplaceable("not_fit", "Kueue's", fit=fit, wanted=wanted, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "request_", "text"),
    [
        (not_fit(3, 8), RANKS, "lab x has room for only 3 of 8 ranks"),
        (not_fit(0, 8), RANKS, "lab x has no room for any of 8 ranks"),
        (not_fit(4, 8), RACKS, "no layer 3 of lab x has room for 8 ranks; the most that fit into one is 4"),
        (not_fit(8, 8), RACKS, "lab x has room for 8 ranks, but not for the leader beside them"),
        (
            not_fit(1, 2, unit="slice"),
            SLICED,
            "lab x has room for only 1 of 2 slices of 4 ranks, each in one layer 3",
        ),
        (
            not_fit(0, 2, layers=((layer_label(3), 1, 2), ("kubernetes.io/hostname", 2, 4))),
            SLICED,
            (
                "lab x has no room for the nested slices of 8 ranks: 1 of 2 slices for each layer 3; "
                "2 of 4 slices for each host"
            ),
        ),
        (
            not_fit(0, 1, total_nodes=9, excluded={
                "nodeSelector": 2, "affinity": 1, "resource cpu": 3, "resource pods": 1, "taint k=v:NoSchedule": 1,
                "topologyDomain": 1,
            }),
            RANKS,
            (
                "lab x has no room for any of 1 rank (of 9 nodes, without room for any rank: 1 excluded by "
                "node_affinity, 1 full, 1 outside the domain that the ranks must stay in, 1 tainted k=v:NoSchedule, "
                "2 not selected by node_selector, 3 short of cpu)"
            ),
        ),
        (
            Unplaceable("no_replacement", "", argument="h3"),
            SLICED,
            "lab x has no host for the ranks of h3 where their slices would be whole again",
        ),
        (
            Unplaceable("inner_not_below", "", argument=layer_label(2)),
            SLICED,
            "slices: layer 2 is not inside the layer of the slice around it",
        ),
        (Unplaceable("count", "as it is"), RANKS, "as it is"),
    ],
)  # fmt: skip
def test_explain(found: Unplaceable, request_: PlacementRequest, text: str) -> None:
    assert explain(found, request=request_, where="lab x") == text
