"""netns.inventory.fabric_layers: the layers of leaf-spines, three tiers, and any other connected fabric."""

from __future__ import annotations

import pytest
from hypothesis import given

from netns.errors import TopologyError
from netns.inventory.fabric_layers import nodes_of, switches_of
from netns.inventory.layers import levels_of, path_of
from netns.topology.model import Link, Switch, Topology, leaf_spine
from tests.netns.strategies import TOPOLOGIES


def three_tiers() -> Topology:
    """Two pods of two leaves of two hosts; a pod has two switches of its own below two core switches."""
    leaves = [f"leaf{index}" for index in range(4)]
    aggregates = [f"agg{index}" for index in range(4)]
    cores = ["core0", "core1"]
    links = [Link(f"h{index}", leaves[index // 2]) for index in range(8)]
    links += [Link(leaf, aggregates[2 * (index // 2) + side]) for index, leaf in enumerate(leaves) for side in (0, 1)]
    links += [Link(aggregate, core) for aggregate in aggregates for core in cores]
    switches = [Switch(leaf, "leaf") for leaf in leaves] + [Switch(name, "spine") for name in aggregates + cores]
    return Topology(name="tiers", hosts=tuple(f"h{i}" for i in range(8)), switches=tuple(switches), links=tuple(links))


def paths(topology: Topology) -> list[tuple[str, ...]]:
    nodes = nodes_of(topology)
    return [path_of(node, levels_of(nodes)) for node in nodes]


def test_leaf_spine__leaf_is_the_lowest_layer() -> None:
    assert paths(leaf_spine(name="demo", leaves=2, spines=2, hosts_per_leaf=2)) == [
        ("demo", "spine1-spine2", "leaf1", "h1"),
        ("demo", "spine1-spine2", "leaf1", "h2"),
        ("demo", "spine1-spine2", "leaf2", "h3"),
        ("demo", "spine1-spine2", "leaf2", "h4"),
    ]


def test_three_tiers__leaf_pod_core() -> None:
    assert paths(three_tiers())[::2] == [
        ("core0-core1", "agg0-agg1", "leaf0", "h0"),
        ("core0-core1", "agg0-agg1", "leaf1", "h2"),
        ("core0-core1", "agg2-agg3", "leaf2", "h4"),
        ("core0-core1", "agg2-agg3", "leaf3", "h6"),
    ]


def test_switches__of_each_domain() -> None:
    assert switches_of(three_tiers()) == {
        "agg0-agg1": ("agg0", "agg1"),
        "agg2-agg3": ("agg2", "agg3"),
        "core0-core1": ("core0", "core1"),
    }
    assert switches_of(leaf_spine(name="demo", leaves=1, spines=1)) == {"spine1": ("spine1",)}


def test_one_spine__layer_has_the_name_of_the_spine() -> None:
    assert paths(leaf_spine(name="demo", leaves=1, spines=1)) == [("demo", "spine1", "leaf1", "h1")]


def test_lone_leaf__the_layers_above_are_the_fabric() -> None:
    topology = Topology(name="lone-", hosts=("h1",), switches=(Switch("s", "leaf"),), links=(Link("h1", "s"),))
    assert paths(topology) == [("lone", "lone", "s", "h1")]


def test_five_tiers_bad_flow() -> None:
    switches = tuple(Switch(f"s{index}", "spine") for index in range(5))
    chain = tuple(Link(f"s{index}", f"s{index + 1}") for index in range(4))
    topology = Topology(name="tall", hosts=("h1",), switches=switches, links=(Link("h1", "s0"), *chain))
    with pytest.raises(TopologyError, match="tall: has 5 tiers of switches; there are at most 4 layers"):
        nodes_of(topology)


@given(topology=TOPOLOGIES)
def test_any_fabric__hosts_of_one_leaf_share_the_lowest_layer_and_all_share_the_first(topology: Topology) -> None:
    try:
        found = paths(topology)
    except TopologyError:
        return
    leaves = [topology.switch_of(host) for host in topology.hosts]
    assert [path[-2] for path in found] == leaves
    assert len({path[0] for path in found}) == 1
    assert all(4 <= len(path) <= 5 for path in found)
