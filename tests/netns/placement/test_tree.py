"""netns.placement.tree: from nodes to domains."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from dataclasses import replace

import pytest

from netns.nodes import HOSTNAME_LABEL, PODS, Node
from netns.placement.model import DEFAULT_FLAVOR, Flavor, Usage
from netns.placement.tree import Tree, build
from tests.netns.placement_cluster import BLOCK, LEVELS, RACK, node

NODES = [node(path, cpu=4) for path in ("b2/r1/x3", "b1/r2/x2", "b1/r1/x1", "b1/r1/x0")]


def built(
    nodes: Sequence[Node] = NODES,
    *,
    levels: Sequence[str] = LEVELS,
    usage: Sequence[Usage] = (),
    flavor: Flavor = DEFAULT_FLAVOR,
) -> Tree:
    return build(nodes, levels=levels, flavor=flavor, usage=usage)


def test_build__each_level_in_the_order_of_label_paths() -> None:
    tree = built()
    assert [[part.values for part in parts] for parts in tree.per_level] == [
        [("b1",), ("b2",)],
        [("b1", "r1"), ("b1", "r2"), ("b2", "r1")],
        [("b1", "r1", "x0"), ("b1", "r1", "x1"), ("b1", "r2", "x2"), ("b2", "r1", "x3")],
    ]


def test_build__only_nodes_that_belong() -> None:
    nodes = [
        NODES[0],
        replace(NODES[1], ready=False),
        replace(NODES[2], unschedulable=True),
        replace(NODES[3], labels={HOSTNAME_LABEL: "x"}),
    ]
    assert len(built(nodes).per_level[-1]) == 1
    assert len(built(flavor=Flavor(node_labels={BLOCK: "b1"})).per_level[-1]) == 3


def test_build__nodes_of_one_lowest_domain_add_up() -> None:
    tree = built(levels=(BLOCK, RACK))
    part = tree.find(("b1", "r1"))
    assert part is not None
    assert part.room == {PODS: 20, "cpu": 8}
    assert part.node is None
    assert not tree.of_nodes
    assert tree.called(part) == ("b1", "r1")


def test_build__a_hostname_given_twice_is_one_node() -> None:
    tainted = replace(NODES[2], name="a")
    for nodes in ([*NODES, tainted], [tainted, *NODES]):
        part = built(nodes).find(("x1",))
        assert part is not None
        assert part.room["cpu"] == 8
        assert part.node is tainted


def test_build__usage_by_node_by_domain_and_elsewhere() -> None:
    usage = [
        Usage({"cpu": 1}, node="x1"),
        Usage({"cpu": 2}, count=3, domain=("x1",)),
        Usage({"cpu": 9}, node="elsewhere"),
        Usage({"cpu": 9}, domain=("elsewhere",)),
        Usage({"cpu": 9}),
    ]
    tree = built(usage=usage)
    assert [part.used for part in tree.per_level[-1]] == [None, {"cpu": 7, PODS: 4}, None, None]


def test_path__of_what_is_there_and_what_is_not() -> None:
    assert built().path(("x2",)) == ("b1", "r2", "x2")
    with pytest.raises(KeyError):
        built().path(("x9",))


def test_tree__is_gone_without_the_garbage_collector() -> None:
    gc.disable()
    try:
        gone = weakref.ref(built())
        assert gone() is None
    finally:
        gc.enable()
