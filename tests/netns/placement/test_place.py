"""netns.placement.place: hosts of ranks, and distances."""

from __future__ import annotations

from dataclasses import replace

import pytest

from netns.errors import JobError, NodesError, PlacementError
from netns.inventory.fabric_layers import nodes_of
from netns.inventory.nodes import Node, layer_label
from netns.placement import Job, place
from netns.placement.model import Usage
from netns.topology.model import leaf_spine

NODES = nodes_of(leaf_spine(name="demo", leaves=3, spines=2, hosts_per_leaf=4))


def job(**fields: object) -> Job:
    return Job.model_validate({"name": "ring", "ranks": 4, "command": ["x"], **fields})


def test_place__ranks_are_neighbours_in_the_order_of_the_network() -> None:
    placement = place(job(topology={"required": 3}), NODES)
    assert placement.hosts == ("h1", "h2", "h3", "h4")
    assert placement.shared == (layer_label(3), "leaf1")
    assert placement.ring_hops == (1, 1, 1, 1)
    assert placement.hops[0] == (0, 1, 1, 1)


def test_place__preferred_spills_over_into_as_few_leaves_as_can_be() -> None:
    placement = place(job(ranks=6, topology={"preferred": 3}), NODES)
    assert placement.hosts == ("h1", "h2", "h3", "h4", "h5", "h6")
    assert placement.shared == (layer_label(2), "spine1-spine2")
    assert placement.ring_hops == (1, 1, 1, 3, 1, 3)


def test_place__beside_running_pods() -> None:
    placement = place(job(topology={"required": 3}), NODES, usage=[Usage({}, node="h1")])
    assert placement.shared == (layer_label(3), "leaf2")


def test_place__several_ranks_a_host() -> None:
    nodes = nodes_of(leaf_spine(name="demo", leaves=2, hosts_per_leaf=2), ranks_per_host=2)
    placement = place(job(topology={"required": 3}), nodes)
    assert placement.hosts == ("h1", "h1", "h2", "h2")
    assert placement.ring_hops == (0, 1, 0, 1)
    assert place(job(ranks=1), nodes).ring_hops == (0,)


def test_place__resources_only_where_nodes_report_them() -> None:
    demanding = job(ranks=2, resources={"cpu": "2"})
    placement = place(demanding, NODES)
    assert placement.notes == ("the nodes report no allocatable resources; not checked: cpu",)
    nodes = [replace(node, allocatable={"cpu": 2000, "pods": 9}) for node in NODES[:2]]
    assert place(demanding, nodes).notes == ()
    with pytest.raises(PlacementError, match=r'excluded: resource "cpu": 2$'):
        place(job(ranks=2, resources={"cpu": "2001m"}), nodes)


def test_place__nothing_shared() -> None:
    far = [replace(node, labels={**node.labels, layer_label(1): node.name}) for node in NODES[:2]]
    assert place(job(ranks=2), far).shared is None


def test_place__bad_flow() -> None:
    with pytest.raises(
        PlacementError, match=r'^job ring: topology "default" allows to fit only 12 out of 13 pod\(s\)$'
    ):
        place(job(ranks=13), NODES)
    with pytest.raises(JobError, match=r"^job ring: level example.com/rack: the nodes have no such level; theirs are"):
        place(job(topology={"required": "example.com/rack"}), NODES)
    with pytest.raises(JobError, match=r"^job ring: level 7: the nodes have no such level"):
        place(job(slices=[{"layer": "7", "size": 2}]), NODES)
    with pytest.raises(JobError, match=r"^job ring: podset slice topology .*layer-1 is above the podset topology"):
        place(job(topology={"required": 3}, slices=[{"layer": 1, "size": 2}]), NODES)
    with pytest.raises(NodesError, match=r"^node x: has no label topology.k8s.aws/network-node-layer-1"):
        place(job(), [*NODES, Node("x")])
    with pytest.raises(PlacementError, match=r"no topology domains at level: kubernetes.io/hostname"):
        place(job(), [replace(NODES[0], ready=False)])
