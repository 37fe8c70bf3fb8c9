"""netns.placement.counting: the room of each node, and the reasons for exclusions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from netns.inventory.nodes import HOSTNAME_LABEL, PODS, Node, Taint
from netns.placement.counting import Demand, Excluded, Filters, count_hosts, excluded
from netns.placement.groups import assign_in
from netns.placement.model import (
    DEFAULT_FLAVOR,
    Affinity,
    Expression,
    Mode,
    PlacementRequest,
    Slice,
    Term,
    TopologyAssignment,
    Unplaceable,
    Usage,
)
from netns.placement.tree import Tree, build
from tests.netns.placement_cluster import BLOCK, LEVELS, node

ANY = Filters((), {}, None)
NODES = [node("b1/r1/x1", cpu=4), node("b1/r1/x2", cpu=1), node("b2/r1/x3")]


def filled(
    worker: Mapping[str, int],
    *,
    nodes: Sequence[Node] = NODES,
    leader: Mapping[str, int] | None = None,
    filters: Filters = ANY,
    usage: Sequence[Usage] = (),
) -> tuple[Tree, Excluded]:
    tree = build(nodes, levels=LEVELS, flavor=DEFAULT_FLAVOR, usage=usage)
    count_hosts(tree, Demand(worker, leader=leader, scored=True), filters=filters)
    return tree, excluded(tree)


def test_count_hosts__zero_requests_and_overuse() -> None:
    tree, _ = filled({"gpu": 0}, usage=[Usage({"gpu": 5}, node="x1", count=3)])
    assert [domain.pods for domain in tree.at(2)] == [7, 10, 10]
    tree, left_out = filled({"cpu": 1}, usage=[Usage({"cpu": 5}, node="x1")])
    assert tree.at(2)[0].pods == 0
    assert left_out.reasons == {"resource cpu": 2}


def test_count_hosts__of_two_that_are_scarce_the_first_by_name() -> None:
    full = [replace(NODES[0], allocatable={"cpu": 1, PODS: 1})]
    _, left_out = filled({"cpu": 1}, nodes=full, usage=[Usage({"cpu": 1}, node="x1")])
    assert left_out.reasons == {"resource cpu": 1}
    _, left_out = filled({}, nodes=full, usage=[Usage({}, node="x1")])
    assert left_out.reasons == {"resource pods": 1}


def test_count_hosts__filters() -> None:
    tainted = [*NODES[:2], replace(NODES[2], taints=(Taint("a", "b"),))]
    near = Affinity(preferred=((5, Term((Expression(BLOCK, "In", ("b1",)),))),))
    tree, left_out = filled({}, nodes=tainted, filters=Filters((), {BLOCK: "b1"}, near))
    assert [domain.score for domain in tree.at(2)] == [5, 5, 0]
    assert left_out.reasons == {"taint a=b:NoSchedule": 1}
    _, left_out = filled({}, filters=Filters((), {BLOCK: "b2"}, None))
    assert left_out.reasons == {"nodeSelector": 2}
    tree, left_out = filled({}, filters=replace(ANY, within=("b1", "r1")))
    assert [domain.pods for domain in tree.at(2)] == [10, 10, 0]
    assert left_out.reasons == {"topologyDomain": 1}


def test_counts_are_kept_until_something_changes_on_the_rack() -> None:
    """What is placed in a tree that stays is what is placed in one that is built anew, whatever was asked before."""
    nodes = [
        Node(f"h{n}", labels={"rack": f"r{n // 2}", HOSTNAME_LABEL: f"h{n}"}, allocatable={"pods": 2}) for n in range(8)
    ]
    levels, kept_usage = ("rack", HOSTNAME_LABEL), list[Usage]()
    kept = build(nodes, levels=levels, flavor=DEFAULT_FLAVOR, usage=())
    rng = Random(1)
    placed: list[tuple[Usage, ...]] = []
    for _ in range(300):
        kind: Mode = rng.choice(("required", "preferred", "implied"))
        request = PlacementRequest(
            name="a",
            count=rng.randrange(1, 6),
            mode=kind,
            level=None if kind == "implied" else "rack",
            node_selector={HOSTNAME_LABEL: "h3"} if rng.random() < 0.1 else {},
            slices=(Slice(HOSTNAME_LABEL, 2),) if kind == "required" and rng.random() < 0.3 else (),
        )
        fresh = build(nodes, levels=levels, flavor=DEFAULT_FLAVOR, usage=kept_usage)
        (result,) = assign_in(kept, requests=[request]).values()
        assert (result,) == tuple(assign_in(fresh, requests=[request]).values())
        if isinstance(result, TopologyAssignment) and rng.random() < 0.6:
            placed.append(tuple(Usage({}, count=each.count, domain=each.values) for each in result.domains))
            kept.add_usage(placed[-1])
            kept_usage += placed[-1]
        elif placed:
            gone = [replace(each, count=-each.count) for each in placed.pop(rng.randrange(len(placed)))]
            kept.add_usage(gone)
            kept_usage += gone


def test_requests_of_one_job_see_what_the_others_got_and_leave_the_tree_as_it_was() -> None:
    nodes = [Node(f"h{n}", labels={HOSTNAME_LABEL: f"h{n}"}, allocatable={"pods": 1}) for n in range(3)]
    tree = build(nodes, levels=(HOSTNAME_LABEL,), flavor=DEFAULT_FLAVOR, usage=())
    first, second, third = (PlacementRequest(name=name, count=count) for name, count in (("a", 2), ("b", 1), ("c", 1)))
    for _ in range(2):
        found = assign_in(tree, requests=[first, second, third])
        assert [str(each) if isinstance(each, Unplaceable) else each.count for each in found.values()] == [
            2,
            1,
            'topology "default" doesn\'t allow to fit any of 1 pod(s). Total nodes: 3; excluded: resource "pods": 3',
        ]
