"""netns.placement.tree: from nodes to domains."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from netns.inventory.nodes import PODS, Node
from netns.placement.counting import Demand, Filters, count_hosts
from netns.placement.model import DEFAULT_FLAVOR, ResourceFlavor, Usage
from netns.placement.tree import Tree, build
from tests.netns.placement_cluster import BLOCK, LEVELS, RACK, node

NODES = [node(path, cpu=4) for path in ("b2/r1/x3", "b1/r2/x2", "b1/r1/x1", "b1/r1/x0")]


def built(
    nodes: Sequence[Node] = NODES,
    *,
    levels: Sequence[str] = LEVELS,
    usage: Sequence[Usage] = (),
    flavor: ResourceFlavor = DEFAULT_FLAVOR,
) -> Tree:
    return build(nodes, levels=levels, flavor=flavor, usage=usage)


def hosts(tree: Tree) -> Mapping[str, Node]:
    """Of the first of the domains that hold any."""
    return tree.holders[0][1].nodes


def counted(tree: Tree) -> Tree:
    count_hosts(tree, Demand({}), filters=Filters((), {}, None))
    return tree


def test_build__each_level_in_the_order_of_label_paths() -> None:
    tree = counted(built())
    assert [[domain.values for domain in domains] for domains in map(tree.at, range(3))] == [
        [("b1",), ("b2",)],
        [("b1", "r1"), ("b1", "r2"), ("b2", "r1")],
        [("b1", "r1", "x0"), ("b1", "r1", "x1"), ("b1", "r2", "x2"), ("b2", "r1", "x3")],
    ]


def test_build__nodes_of_one_lowest_domain_add_up() -> None:
    tree = built(levels=(BLOCK, RACK))
    assert hosts(tree)["r1"].allocatable == {PODS: 20, "cpu": 8}
    assert not tree.of_nodes
    assert tree.assignment_name(("b1", "r1")) == ("b1", "r1")


def test_build__a_hostname_given_twice_is_one_node() -> None:
    tainted = replace(NODES[2], name="a")
    for nodes in ([*NODES, tainted], [tainted, *NODES]):
        one = hosts(built(nodes))["x1"]
        assert one.allocatable["cpu"] == 8
        assert one.name == "a"


def test_build__usage_by_node_by_domain_and_elsewhere() -> None:
    usage = [
        Usage({"cpu": 1}, node="x1"),
        Usage({"cpu": 2}, count=3, domain=("x1",)),
        Usage({"cpu": 9}, node="elsewhere"),
        Usage({"cpu": 9}, domain=("elsewhere",)),
        Usage({"cpu": 9}),
    ]
    tree = built(usage=usage)
    assert [each.used for _, each in tree.holders] == [{"x1": {"cpu": 7, PODS: 4}}, {}, {}]


def test_path__existing_and_missing_domain() -> None:
    assert built().path(("x2",)) == ("b1", "r2", "x2")
    with pytest.raises(KeyError):
        built().path(("x9",))


def test_tree__is_freed_without_the_garbage_collector() -> None:
    gc.disable()
    try:
        gone = weakref.ref(built())
        assert gone() is None
    finally:
        gc.enable()
