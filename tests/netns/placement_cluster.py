"""Clusters and requests for tests of placement, by hand and by Hypothesis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from netns.inventory.nodes import HOSTNAME_LABEL, PODS, Node
from netns.placement.model import PlacementRequest, Slice, TopologyAssignment, Unplaceable, Usage

BLOCK = "example.com/block"
RACK = "example.com/rack"
LEVELS = (BLOCK, RACK, HOSTNAME_LABEL)


def node(path: str, **room: int) -> Node:
    """ "b1/r1/x1" with room for pods, and whatever else is given."""
    block, rack, host = path.split("/")
    return Node(host, labels={BLOCK: block, RACK: rack, HOSTNAME_LABEL: host}, allocatable={PODS: 10, **room})


def counts(found: TopologyAssignment | Unplaceable) -> dict[str, int]:
    """Pods by host, of an assignment."""
    assert isinstance(found, TopologyAssignment), str(found)
    return {domain.values[-1]: domain.count for domain in found.domains}


@st.composite
def clusters(draw: st.DrawFn) -> list[Node]:
    """Up to 3 blocks of up to 3 racks of up to 4 nodes; rack names repeat in every block."""
    nodes: list[Node] = []
    for block in range(draw(st.integers(1, 3))):
        for rack in range(draw(st.integers(1, 3))):
            for _ in range(draw(st.integers(1, 4))):
                path = f"b{block}/r{rack}/x{len(nodes)}"
                nodes.append(node(path, cpu=draw(st.integers(0, 5)), pods=draw(st.sampled_from([1, 3, 10]))))
    return draw(st.permutations(nodes))


@st.composite
def requests(draw: st.DrawFn) -> PlacementRequest:
    """Any of the modes, at any level, with up to two layers of slices."""
    mode = draw(st.sampled_from(["required", "preferred", "unconstrained", "implied", "slice_only"]))
    level = draw(st.integers(0, 2))
    slices: tuple[Slice, ...] = ()
    count = draw(st.integers(1, 12))
    if mode == "slice_only" or draw(st.booleans()):
        first = draw(st.integers(level if mode in ("required", "preferred") else 0, 2))
        size = draw(st.sampled_from([1, 2, 3, 4]))
        slices = (Slice(LEVELS[first], size),)
        if first < 2 and draw(st.booleans()):
            inner = draw(st.integers(first + 1, 2))
            slices += (Slice(LEVELS[inner], draw(st.sampled_from([s for s in (1, 2, 3, 4) if size % s == 0]))),)
        count = size * draw(st.integers(1, 4))
    return PlacementRequest(
        count=count,
        requests={"cpu": draw(st.integers(1, 2))},
        mode=mode,  # type: ignore[arg-type]  # sampled from the modes
        level=LEVELS[level] if mode in ("required", "preferred") else None,
        slices=slices,
    )


def usages(nodes: Sequence[Node]) -> st.SearchStrategy[list[Usage]]:
    """Pods that run already, on some of the nodes."""
    one = st.builds(
        lambda host, cpu, by_name: Usage({"cpu": cpu}, node=host) if by_name else Usage({"cpu": cpu}, domain=(host,)),
        st.sampled_from([each.name for each in nodes]),
        st.integers(0, 2),
        st.booleans(),
    )
    return st.lists(one, max_size=4)


def room(nodes: Sequence[Node], usage: Sequence[Usage]) -> dict[str, Mapping[str, int]]:
    """The free room of each host."""
    left = {each.name: dict(each.allocatable) for each in nodes}
    for each in usage:
        host = each.node or (each.domain or ("",))[-1]
        for resource, amount in {**each.requests, PODS: 1}.items():
            left[host][resource] = left[host].get(resource, 0) - amount * each.count
    return dict(left)
