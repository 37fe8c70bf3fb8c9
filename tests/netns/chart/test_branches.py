"""netns.chart.branches: nodes as a tree."""

from __future__ import annotations

import random

import pytest

from netns.chart.branches import branches
from netns.errors import NodesError
from netns.inventory.fabric_layers import nodes_of
from netns.inventory.nodes import HOSTNAME_LABEL, Node, layer_label
from netns.topology.model import leaf_spine

NODES = nodes_of(leaf_spine(name="demo", leaves=2, spines=2, hosts_per_leaf=2))


def test_branches__parts_hold_their_hosts() -> None:
    whole = branches(NODES)
    assert [node.name for node in whole.nodes] == ["h1", "h2", "h3", "h4"]
    assert [(part.name, [node.name for node in part.nodes]) for part in whole.at(layer_label(3))] == [
        ("leaf1", ["h1", "h2"]),
        ("leaf2", ["h3", "h4"]),
    ]
    assert [branch.path for branch in whole.walk()][:4] == [
        (),
        ("demo",),
        ("demo", "spine1-spine2"),
        ("demo", "spine1-spine2", "leaf1"),
    ]


def test_branches__order_of_nodes_does_not_matter() -> None:
    shuffled = random.Random(1).sample(NODES, len(NODES))
    assert branches(shuffled) == branches(NODES)


def test_branches__nine_before_ten() -> None:
    whole = branches(nodes_of(leaf_spine(name="demo", leaves=2, spines=1, hosts_per_leaf=6)))
    assert [node.name for node in whole.nodes] == [f"h{number}" for number in range(1, 13)]


def test_branches__digits_of_any_script_and_leading_zeros() -> None:
    labels = {layer_label(layer): "x" for layer in (1, 2, 3)}
    nodes = [Node(name, labels={**labels, HOSTNAME_LABEL: name}) for name in ("h2", "h\u0661", "h01", "h1", "h", "2")]
    assert [node.name for node in branches(nodes).nodes] == ["2", "h", "h01", "h1", "h2", "h\u0661"]


def test_branches__node_without_labels_bad_flow() -> None:
    with pytest.raises(NodesError, match="node x: has no label"):
        branches([*NODES, Node("x")])
