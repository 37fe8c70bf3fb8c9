"""netns.inventory.layers: names of levels, shared levels, distances."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netns.errors import NodesError
from netns.inventory.layers import (
    hop_counts,
    hop_matrix,
    hops,
    level_named,
    levels_of,
    short_name,
)
from netns.inventory.nodes import HOSTNAME_LABEL, ULTRASERVER_LABEL, Node, layer_label


def node(name: str, *values: str) -> Node:
    labels = {layer_label(layer): value for layer, value in enumerate(values, 1)}
    return Node(name, labels={**labels, HOSTNAME_LABEL: name})


A = node("a", "1", "11", "111")
B = node("b", "1", "11", "111")
C = node("c", "1", "11", "112")
D = node("d", "1", "12", "121")
E = node("e", "2", "21", "211")


@pytest.mark.parametrize("name", ["3", 3, "layer-3", "layer3", "network-node-layer-3", layer_label(3)])
def test_level_named__a_layer(name: str | int) -> None:
    assert level_named(name) == layer_label(3)


def test_level_named__others() -> None:
    assert level_named("host") == level_named("hostname") == HOSTNAME_LABEL
    assert level_named("ultraserver-id") == ULTRASERVER_LABEL
    assert level_named("example.com/rack") == "example.com/rack"
    assert level_named("5") == "5"
    assert [short_name(each) for each in (layer_label(2), HOSTNAME_LABEL, "x")] == ["layer 2", "host", "x"]


def test_levels_of__levels_of_all_nodes() -> None:
    three = (*(layer_label(layer) for layer in (1, 2, 3)), HOSTNAME_LABEL)
    four = node("f", "1", "11", "111", "1111")
    assert levels_of([A, E]) == three
    assert levels_of([A, four]) == three
    assert levels_of([four]) == (*three[:3], layer_label(4), HOSTNAME_LABEL)
    server = replace(A, labels={**A.labels, ULTRASERVER_LABEL: "u1"})
    assert levels_of([server]) == (*three[:3], ULTRASERVER_LABEL, HOSTNAME_LABEL)


def test_levels_of__node_without_labels_bad_flow() -> None:
    with pytest.raises(NodesError, match=f"^node x: has no label {layer_label(1)}; label it, or leave such nodes out"):
        levels_of([A, Node("x")])
    with pytest.raises(NodesError, match=f"^node y: has no label {layer_label(3)}"):
        levels_of([A, node("y", "1", "11")])
    with pytest.raises(NodesError, match="no nodes"):
        levels_of([])


@pytest.mark.parametrize(("other", "switches"), [(A, 0), (B, 1), (C, 3), (D, 5), (E, 7)])
def test_hops__two_more_for_each_layer_further_up(other: Node, switches: int) -> None:
    assert hops(A, other, levels_of([A, other])) == hops(other, A, levels_of([A, other])) == switches


@given(st.lists(st.tuples(*[st.sampled_from("ab")] * 3, st.sampled_from("xyz")), max_size=12))
def test_hop_matrix_and_counts__are_those_of_each_pair(paths: list[tuple[str, str, str, str]]) -> None:
    """Hosts of the same name lie in the same place."""
    at = {path[3]: path for path in paths}
    nodes = [
        Node(host, {**{layer_label(i): value for i, value in enumerate(at[host][:3], 1)}, HOSTNAME_LABEL: host})
        for *_, host in paths
    ]
    levels = [layer_label(1), layer_label(2), layer_label(3), HOSTNAME_LABEL]
    wanted = [[hops(a, b, levels) for b in nodes] for a in nodes]
    assert hop_matrix(nodes, levels).tolist() == wanted
    pairs = Counter(wanted[a][b] for a in range(len(nodes)) for b in range(a))
    assert hop_counts(nodes, levels) == dict(sorted(pairs.items()))
