"""netns.placement.place: hosts of ranks, and distances."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from netns.errors import JobError, NodesError, PlacementError
from netns.inventory.fabric_layers import nodes_of
from netns.inventory.nodes import Node, layer_label
from netns.placement import Job, place
from netns.placement.model import Profile, Usage
from netns.placement.place import replace_hosts
from netns.topology.model import leaf_spine

NODES = nodes_of(leaf_spine(name="demo", leaves=3, spines=2, hosts_per_leaf=4))


def job(**fields: object) -> Job:
    return Job.model_validate({"name": "ring", "ranks": 4, "command": ["x"], **fields})


def test_place__preferred_spills_over_into_as_few_leaves_as_can_be() -> None:
    placement = place(job(ranks=6, topology={"preferred": 3}), NODES)
    assert placement.hosts == ("h1", "h2", "h3", "h4", "h5", "h6")
    assert placement.shared == (layer_label(2), "spine1-spine2")
    assert placement.ring_hops == (1, 1, 1, 3, 1, 3)


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
    assert place(demanding, nodes, usage=()).notes == ()
    with pytest.raises(PlacementError, match=r"\(of 2 nodes, without room for any rank: 2 short of cpu\)$"):
        place(job(ranks=2, resources={"cpu": "2001m"}), nodes)


def test_place__a_leader_is_rank_0_beside_the_others() -> None:
    nodes = [replace(node, allocatable={"cpu": 2000, "pods": 9}) for node in NODES]
    wanted = job(ranks=5, resources={"cpu": "1"}, leader={"resources": {"cpu": "2"}}, topology={"required": 3})
    placement = place(wanted, nodes, usage=())
    assert placement.hosts[0] not in placement.hosts[1:], "it fills its host"
    assert placement.shared == (layer_label(3), "leaf1")
    assert len(placement.hosts) == 5


def test_place__preferred_affinity_with_its_gate() -> None:
    nodes = [replace(node, labels={**node.labels, "fast": "x"}) if node.name > "h4" else node for node in NODES]
    preferred = [{"weight": 1, "match_expressions": [{"key": "fast", "operator": "Exists"}]}]
    wanted = job(ranks=2, topology={"preferred": 3}, node_affinity={"preferred": preferred})
    assert place(wanted, nodes).shared == (layer_label(3), "leaf1")
    gated = place(wanted, nodes, profile=Profile(affinity_preferred=True))
    assert gated.shared == (layer_label(3), "leaf2")


def test_replace_hosts__all_others_stay() -> None:
    wanted = job(ranks=4, topology={"required": 3})
    hosts = ("h5", "h7", "h6", "h8")
    with pytest.raises(PlacementError, match=r"^job ring: no layer 3 of the inventory has room for 1 rank"):
        replace_hosts(wanted, NODES, hosts=hosts, lost=["h7"])
    assert replace_hosts(job(ranks=4), NODES, hosts=hosts, lost=["h7"]).hosts == ("h5", "h1", "h6", "h8")
    roomy = [replace(node, allocatable={"pods": 2}) for node in NODES]
    moved = replace_hosts(wanted, roomy, hosts=("h5", "h5", "h6", "h7"), lost=["h5"])
    assert moved.hosts[2:] == ("h6", "h7")
    assert set(moved.hosts[:2]) <= {"h6", "h7", "h8"}, "in the leaf of the rest"


def test_replace_hosts__the_leader_or_a_worker() -> None:
    roomy = [replace(node, allocatable={"pods": 2}) for node in NODES]
    led = job(ranks=3, leader={}, topology={"required": 3})
    for lost, staying in (("h1", (1, 2)), ("h3", (0, 1))):
        moved = replace_hosts(led, roomy, hosts=("h1", "h2", "h3"), lost=[lost])
        assert [moved.hosts[rank] for rank in staying] == [("h1", "h2", "h3")[rank] for rank in staying]
        assert lost not in moved.hosts
        assert moved.shared == (layer_label(3), "leaf1")


def test_replace_hosts__bad_flow() -> None:
    with pytest.raises(JobError, match=r"^job ring: h9 runs none of its ranks$"):
        replace_hosts(job(), NODES, hosts=("h1", "h2", "h3", "h4"), lost=["h9"])
    with pytest.raises(JobError, match=r"^job ring: has 4 ranks, but the current placement 2$"):
        replace_hosts(job(), NODES, hosts=("h1", "h2"), lost=["h1"])
    with pytest.raises(PlacementError, match=r"^job ring: h99 runs ranks of the job, but is no ready node of"):
        replace_hosts(job(), NODES, hosts=("h1", "h2", "h3", "h99"), lost=["h1"])


def test_replace_hosts__several_at_once() -> None:
    """Lost ones get no ranks, whether the list has them as ready, as not ready, or not at all."""
    hosts, roomy = ("h1", "h1", "h2", "h3"), [replace(node, allocatable={"pods": 2}) for node in NODES]
    down = [replace(node, ready=node.name not in ("h1", "h2")) for node in roomy]
    gone = [node for node in roomy if node.name not in ("h1", "h2")]
    for nodes in (roomy, down, gone):
        for lost in (["h1", "h2"], ["h2", "h1", "h2"]):
            moved = replace_hosts(job(ranks=4), nodes, hosts=hosts, lost=lost)
            assert moved.hosts[3] == "h3"
            assert not {"h1", "h2"} & {*moved.hosts}
            assert max(Counter(moved.hosts).values()) <= 2, "what has moved takes room, too"
            used = [Usage({}, 1, domain=("h3",)), Usage({}, 2, domain=("h4",))]
            beside = replace_hosts(job(ranks=4), nodes, hosts=hosts, lost=lost, usage=used)
            assert "h4" not in beside.hosts
            assert max(Counter(beside.hosts).values()) <= 2


def test_replace_hosts__each_slice_stays_where_it_was() -> None:
    """Two slices of two ranks, each under a leaf, have lost a host each."""
    wanted = job(ranks=4, slices=[{"layer": 3, "size": 2}])
    down = [replace(node, ready=node.name not in ("h1", "h5")) for node in NODES]
    moved = replace_hosts(wanted, down, hosts=("h1", "h2", "h5", "h6"), lost=["h5", "h1"])
    assert [moved.hosts[rank] for rank in (1, 3)] == ["h2", "h6"]
    assert (moved.nodes[0].labels[layer_label(3)], moved.nodes[2].labels[layer_label(3)]) == ("leaf1", "leaf2")


def test_replace_hosts__by_the_name_of_the_node() -> None:
    named = [replace(node, name=f"node-{node.name}") for node in NODES]
    moved = replace_hosts(job(ranks=2), named, hosts=("h1", "h2"), lost=["node-h2"])
    assert moved.hosts[0] == "h1"
    assert moved.hosts[1] not in ("h1", "h2")


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"unschedulable": True}, "cordoned"),
        ({"ready": False}, "not ready"),
        ({"unschedulable": True, "ready": False}, "cordoned and not ready"),
    ],
)
def test_replace_hosts__a_rank_that_cannot_stay_bad_flow(changes: dict[str, Any], state: str) -> None:
    nodes = [replace(node, **changes) if node.name == "h3" else node for node in NODES]
    message = f"job ring: h3 runs ranks of the job, but is {state} in the inventory; if it is lost, replace it, too"
    with pytest.raises(PlacementError, match=f"^{message}$"):
        replace_hosts(job(ranks=2), nodes, hosts=("h1", "h3"), lost=["h1"])


def test_place__nothing_shared() -> None:
    far = [replace(node, labels={**node.labels, layer_label(1): node.name}) for node in NODES[:2]]
    assert place(job(ranks=2), far).shared is None


def test_place__bad_flow() -> None:
    with pytest.raises(PlacementError, match=r"^job ring: demo.yaml has room for only 12 of 13 ranks$"):
        place(job(ranks=13), NODES, where="demo.yaml")
    with pytest.raises(JobError, match=r"^job ring: level example.com/rack: the nodes have no such level; theirs are"):
        place(job(topology={"required": "example.com/rack"}), NODES)
    with pytest.raises(JobError, match=r"^job ring: level 7: the nodes have no such level"):
        place(job(slices=[{"layer": "7", "size": 2}]), NODES)
    with pytest.raises(JobError, match=r"^job ring: slices\[0\].layer: layer 1 is wider than layer 3, in which"):
        place(job(topology={"required": 3}, slices=[{"layer": 1, "size": 2}]), NODES)
    with pytest.raises(NodesError, match=r"^node x: has no label topology.k8s.aws/network-node-layer-1"):
        place(job(), [*NODES, Node("x")])
    with pytest.raises(PlacementError, match=r"none of the nodes of the inventory is ready and schedulable$"):
        place(job(), [replace(NODES[0], ready=False)])
