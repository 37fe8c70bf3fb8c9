"""netns.cli.show_placement: the output."""

from __future__ import annotations

import pytest

from netns.chart.branches import branches
from netns.cli.show_placement import MATRIX_RANKS, show_placement, show_topology
from netns.inventory.fabric_layers import nodes_of
from netns.inventory.layers import levels_of
from netns.inventory.nodes import layer_label
from netns.placement import Job, Placement, place
from netns.topology.model import leaf_spine

NODES = nodes_of(leaf_spine(name="demo", leaves=9, spines=2, hosts_per_leaf=2))


def placed(ranks: int) -> Placement:
    job = Job.model_validate({"name": "ring", "ranks": ranks, "command": ["x"], "topology": {"preferred": 3}})
    return place(job, NODES)


def test_show_topology__a_row_for_each_lowest_domain(capsys: pytest.CaptureFixture[str]) -> None:
    show_topology(branches(NODES[:4]), levels_of(NODES))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert " ".join(lines[0]) == "4 hosts in 1 of layer 1, 1 of layer 2, 2 of layer 3"
    assert lines[2:] == [["demo", "spine1-spine2", "leaf1", "2", "h1", "h2"], ["leaf2", "2", "h3", "h4"]]


def test_show_topology__repeated_names_under_other_parents(capsys: pytest.CaptureFixture[str]) -> None:
    labels = [("1", "a", "r"), ("2", "a", "r")]
    nodes = [
        type(node)(node.name, labels={**node.labels, **{layer_label(i + 1): v for i, v in enumerate(values)}})
        for node, values in zip(NODES, labels, strict=False)
    ]
    show_topology(branches(nodes), levels_of(nodes))
    assert [line.split()[:3] for line in capsys.readouterr().out.splitlines()[2:]] == [["1", "a", "r"], ["2", "a", "r"]]


def test_show_placement__ranks_hosts_and_distances(capsys: pytest.CaptureFixture[str]) -> None:
    show_placement(placed(3))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "job ring: 3 ranks on 3 hosts, all in layer 2 spine1-spine2"
    assert lines[2].split() == ["0", "h1", "demo", "spine1-spine2", "leaf1", "1"]
    assert lines[5] == "switches around the ring: 7"
    assert [line.split() for line in lines[8:]] == [["0", "0", "1", "3"], ["1", "1", "0", "3"], ["2", "3", "3", "0"]]


def test_show_placement__many_ranks_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    show_placement(placed(MATRIX_RANKS + 2))
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "pairs of ranks by switches between them:",
        "  1: 9",
        "  3: 144",
    ]
