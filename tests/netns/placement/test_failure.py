"""netns.placement.failure: Kueue's messages, and their facts as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from netns.inventory.nodes import HOSTNAME_LABEL, Node, Taint
from netns.placement.assign import assign
from netns.placement.model import PlacementRequest, ResourceFlavor, Slice, Unplaceable, Usage
from tests.netns.placement_cluster import BLOCK, LEVELS, RACK, node

NODES = [node("b1/r1/x1", cpu=2), node("b1/r2/x2", cpu=2), node("b2/r1/x3", cpu=2), node("b2/r1/x4", cpu=2)]


def failed(request: PlacementRequest, nodes: Sequence[Node] = NODES, usage: Sequence[Usage] = ()) -> Unplaceable:
    found = assign(nodes, usage=usage, request=request, levels=LEVELS, flavor=ResourceFlavor(topology="lab"))
    assert isinstance(found, Unplaceable)
    return found


def test_not_fit__none_and_every_reason_counted_in_order() -> None:
    nodes = [replace(NODES[0], taints=(Taint("k", "v"),)), *NODES[1:], node("b1/r1/x9", cpu=0)]
    request = PlacementRequest(count=2, requests={"cpu": 1}, mode="required", level=RACK, node_selector={BLOCK: "b1"})
    found = failed(request, nodes, [Usage({"cpu": 2}, node="x2")])
    assert str(found) == (
        'topology "lab" doesn\'t allow to fit any of 2 pod(s). '
        'Total nodes: 5; excluded: nodeSelector: 2, resource "cpu": 2, taint "k=v:NoSchedule": 1'
    )
    assert found.excluded == {"nodeSelector": 2, "resource cpu": 2, "taint k=v:NoSchedule": 1}


def test_not_fit__nested_slices_each_layer_in_the_best_domain() -> None:
    slices = (Slice(RACK, 4), Slice(HOSTNAME_LABEL, 2))
    found = failed(PlacementRequest(count=8, requests={"cpu": 1}, mode="required", level=BLOCK, slices=slices))
    assert str(found) == (
        'topology "lab" doesn\'t allow to fit; 1/2 slice(s) fit on level example.com/rack; '
        "2/4 slice(s) fit on level kubernetes.io/hostname"
    )
    assert found.layers == ((RACK, 1, 2), (HOSTNAME_LABEL, 2, 4))
