"""Duration of an assignment, and its growth with the size of the cluster.

The clusters are those of Kueue's own benchmark: racks of 16 nodes, blocks of 16 racks; 2,500 nodes and ten times as
many. Every node has room for one rank; one in eight is taken. 512 ranks are requested in four modes: required in
one domain of layer 1, preferred in one of layer 2 (whose blocks are too small, so that several are used),
unconstrained, and in slices of 8 per rack. `assign_2500_ms` is the slowest of the four. Each is the fastest of several
calls, from plain nodes to the result, because other load can only add to it. `growth_10x_ratio`: the sum of the four on
25,000 nodes over that on 2,500.

Times are the thread's CPU time. An assignment does not wait, so on an idle machine that equals wall time. On a busy
machine long calls are preempted and short ones are not, so that wall time would overstate the growth.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import intern
from time import thread_time
from typing import Final

from netns.inventory.layers import LEVELS
from netns.inventory.nodes import HOSTNAME_LABEL, PODS, Node, layer_label
from netns.placement.assign import assign
from netns.placement.model import PlacementRequest, Slice, Unplaceable, Usage
from scripts.benches.outcome import Figures, Wanted
from scripts.harness.errors import BenchError

WANTED: Final = (Wanted("assign_2500_ms", "<", 250), Wanted("growth_10x_ratio", "<=", 12))

NODES: Final = 2500
GROWTH: Final = 10
RANKS: Final = 512
RACK: Final = 16
BLOCK: Final = 16 * RACK
CALLS: Final = 3
TAKEN: Final = 8
"""One of this many nodes is taken."""

LAYERS: Final = tuple(level for level in LEVELS if level in (layer_label(1), layer_label(2), layer_label(3)))
TREE: Final = (*LAYERS, HOSTNAME_LABEL)
REQUESTS: Final = {
    "required": PlacementRequest(count=RANKS, mode="required", level=layer_label(1)),
    "preferred": PlacementRequest(count=RANKS, mode="preferred", level=layer_label(2)),
    "unconstrained": PlacementRequest(count=RANKS, mode="unconstrained"),
    "slices": PlacementRequest(count=RANKS, mode="required", level=layer_label(1), slices=(Slice(layer_label(3), 8),)),
}


def measure() -> Figures:
    small, large = cluster(NODES), cluster(NODES * GROWTH)
    times = {name: (_fastest_s(small, request), _fastest_s(large, request)) for name, request in REQUESTS.items()}
    figures = {f"assign_2500_{name}_ms": few * 1e3 for name, (few, _) in times.items()}
    return {
        "assign_2500_ms": max(figures.values()),
        "growth_10x_ratio": sum(many for _, many in times.values()) / sum(few for few, _ in times.values()),
        "assign_25000_ms": max(many for _, many in times.values()) * 1e3,
        **figures,
    }


def cluster(count: int) -> tuple[list[Node], list[Usage]]:
    """Return `count` nodes with room for one rank each, and their usage."""
    nodes, room = [], {PODS: 1}
    for index in range(count):
        values = ("region", f"block{index // BLOCK:03}", f"rack{index // RACK % 16:02}", f"host{index:05}")
        labels = {level: intern(value) for level, value in zip(TREE, values, strict=True)}  # as the readers do
        nodes.append(Node(values[-1], labels=labels, allocatable=room))
    return nodes, [Usage({}, node=node.name) for node in nodes[::TAKEN]]


def _fastest_s(cluster_: tuple[Sequence[Node], Sequence[Usage]], request: PlacementRequest) -> float:
    nodes, usage = cluster_
    best = float("inf")
    for _ in range(CALLS):
        started_at = thread_time()
        found = assign(nodes, usage=usage, request=request, levels=TREE)
        best = min(best, thread_time() - started_at)
        if isinstance(found, Unplaceable):
            raise BenchError(f"{request.mode}: {found}")
        if found.count != request.count:
            raise BenchError(f"{request.mode}: {found.count} ranks were placed, {request.count} were requested")
    return best
