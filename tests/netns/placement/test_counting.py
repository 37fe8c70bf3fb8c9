"""netns.placement.counting: the room of each node, and the reasons for exclusions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from netns.inventory.nodes import HOSTNAME_LABEL, PODS, Node, Taint
from netns.placement.counting import Demand, Excluded, Filters, count_hosts
from netns.placement.groups import assign_in
from netns.placement.model import (
    DEFAULT_FLAVOR,
    Affinity,
    Assignment,
    Expression,
    Request,
    Term,
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
    return tree, count_hosts(tree, Demand(worker, leader=leader, scored=True), filters=filters)


def test_count_hosts__the_scarcest_resource_counts() -> None:
    tree, excluded = filled({"cpu": 1})
    assert [domain.pods for domain in tree.at(2)] == [4, 1, 0]
    assert (excluded.nodes, excluded.reasons) == (3, {"resource cpu": 1})
    tree, excluded = filled({})
    assert [domain.pods for domain in tree.at(2)] == [10, 10, 10]
    assert not excluded.reasons


def test_count_hosts__zero_requests_and_overuse() -> None:
    tree, _ = filled({"gpu": 0}, usage=[Usage({"gpu": 5}, node="x1", count=3)])
    assert [domain.pods for domain in tree.at(2)] == [7, 10, 10]
    tree, excluded = filled({"cpu": 1}, usage=[Usage({"cpu": 5}, node="x1")])
    assert tree.at(2)[0].pods == 0
    assert excluded.reasons == {"resource cpu": 2}


def test_count_hosts__of_two_that_are_scarce_the_first_by_name() -> None:
    full = [replace(NODES[0], allocatable={"cpu": 1, PODS: 1})]
    _, excluded = filled({"cpu": 1}, nodes=full, usage=[Usage({"cpu": 1}, node="x1")])
    assert excluded.reasons == {"resource cpu": 1}
    _, excluded = filled({}, nodes=full, usage=[Usage({}, node="x1")])
    assert excluded.reasons == {"resource pods": 1}


def test_count_hosts__leaders() -> None:
    tree, _ = filled({"cpu": 1}, leader={"cpu": 2})
    assert [(domain.leaders, domain.pods_led) for domain in tree.at(2)] == [(1, 2), (0, 1), (0, 0)]


def test_count_hosts__filters() -> None:
    tainted = [*NODES[:2], replace(NODES[2], taints=(Taint("a", "b"),))]
    near = Affinity(preferred=((5, Term((Expression(BLOCK, "In", ("b1",)),))),))
    tree, excluded = filled({}, nodes=tainted, filters=Filters((), {BLOCK: "b1"}, near))
    assert [domain.score for domain in tree.at(2)] == [5, 5, 0]
    assert excluded.reasons == {"taint a=b:NoSchedule": 1}
    _, excluded = filled({}, filters=Filters((), {BLOCK: "b2"}, None))
    assert excluded.reasons == {"nodeSelector": 2}
    tree, excluded = filled({}, filters=replace(ANY, within=("b1", "r1")))
    assert [domain.pods for domain in tree.at(2)] == [10, 10, 0]
    assert excluded.reasons == {"topologyDomain": 1}


def test_counts_are_kept_until_something_changes_on_the_rack() -> None:
    """A second request in the same tree sees what the first one took, and what it gave back."""
    nodes = [
        Node(f"h{n}", labels={"rack": f"r{n // 2}", HOSTNAME_LABEL: f"h{n}"}, allocatable={"pods": 1}) for n in range(4)
    ]
    tree = build(nodes, levels=("rack", HOSTNAME_LABEL), flavor=DEFAULT_FLAVOR, usage=())
    request = Request(name="a", count=2, mode="required", level="rack")
    found = []
    for _ in range(3):
        (result,) = assign_in(tree, requests=[request]).values()
        found.append([domain.values for domain in result.domains] if isinstance(result, Assignment) else result.kind)
    assert found == [[("h0",), ("h1",)], [("h2",), ("h3",)], "not_fit"]
    tree.add_usage([Usage({}, count=-1, domain=("h2",)), Usage({}, count=-1, domain=("h3",))])
    (again,) = assign_in(tree, requests=[request]).values()
    assert isinstance(again, Assignment)
    (full,) = assign_in(tree, requests=[request]).values()
    assert isinstance(full, Unplaceable)
    assert full.excluded == {"resource pods": 4}  # counted anew, or as kept: the same
