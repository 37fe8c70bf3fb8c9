"""netns.topology.model: valid fabrics, and the builders."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netns.errors import TopologyError
from netns.netem.shape import Shape
from netns.topology.model import Link, Switch, Topology, leaf_spine, reference, with_buffer

LEAF = Switch("leaf1", "leaf")
SPINE = Switch("spine1", "spine")
SHAPE = Shape(delay_us=1000)


def make(**changes: Any) -> Topology:
    """A small valid topology with `changes`."""
    values: dict[str, Any] = {
        "name": "demo",
        "hosts": ("h1",),
        "switches": (LEAF, SPINE),
        "links": (Link("h1", "leaf1"), Link("leaf1", "spine1", SHAPE)),
    }
    return Topology(**(values | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ""}, r"name: '' cannot name a lab"),
        ({"name": "../etc"}, r"name: '../etc' cannot name a lab"),
        ({"name": "a" * 33}, r"at most 32"),
        ({"name": "-rf"}, r"first a letter or digit"),
        ({"mtu": 1279}, r"mtu: 1279 is not an integer between 1280 and 65535"),
        ({"mtu": 65536}, r"mtu: 65536"),
        ({"mtu": True}, r"mtu: True"),
        ({"seed": -1}, r"seed: -1"),
        ({"ecmp": "fast"}, r"ecmp: 'fast' is unknown; use hash-threshold or resilient"),
        ({"hosts": ()}, r"hosts: none"),
        ({"hosts": ("h1", "h1")}, r"node h1: named twice"),
        ({"hosts": ("leaf1",)}, r"node leaf1: named twice"),
        ({"hosts": ("h-1",)}, r"node 'h-1': not a name for interfaces"),
        ({"hosts": ("lo",)}, r"node 'lo': not a name"),
        ({"hosts": ("all",)}, r"node 'all': not a name"),
        ({"hosts": ("1h",)}, r"node '1h': not a name.* first a letter"),
        ({"hosts": ("a" * 16,)}, r"node a{16}: 16 characters; .* at most 15"),
        ({"switches": (Switch("leaf1", "core"), SPINE)}, r"switches: leaf1: tier 'core' is unknown; use leaf, "),  # type: ignore[arg-type]  # the error under test
        ({"links": (Link("h1", "leaf2"),)}, r"link h1-leaf2: leaf2 is neither a host nor a switch"),
        ({"links": (Link("leaf1", "leaf1"),)}, r"link leaf1-leaf1: joins leaf1 to itself"),
        (
            {"links": (Link("leaf1", "spine1"), Link("spine1", "leaf1"))},
            r"link spine1-leaf1: joins nodes that are joined",
        ),
        ({"hosts": ("h1", "h2"), "links": (Link("h1", "h2"),)}, r"link h1-h2: joins two hosts"),
        ({"links": (Link("leaf1", "spine1"),)}, r"host h1: has 0 links; it needs exactly one"),
        ({"links": (Link("h1", "leaf1"), Link("h1", "spine1"))}, r"host h1: has 2 links"),
        ({"links": (Link("h1", "leaf1"),)}, r"node spine1: no path to h1"),
    ],
)
def test_topology__bad_flow(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TopologyError, match=message) as caught:
        make(**changes)
    assert "\n" not in str(caught.value)


@given(leaves=st.integers(1, 5), spines=st.integers(1, 5), per_leaf=st.integers(1, 4))
def test_leaf_spine__size(leaves: int, spines: int, per_leaf: int) -> None:
    topology = leaf_spine(leaves=leaves, spines=spines, hosts_per_leaf=per_leaf, shape=SHAPE)
    assert len(topology.hosts) == leaves * per_leaf
    assert len(topology.links) == leaves * per_leaf + leaves * spines
    assert {link.name for link in topology.links if link.shaped} == {
        f"{leaf}-{spine}" for leaf in topology.leaves for spine in topology.spines
    }
    for index, host in enumerate(topology.hosts):
        assert topology.switch_of(host) == f"leaf{index // per_leaf + 1}"


@pytest.mark.parametrize("key", ["leaves", "spines", "hosts_per_leaf"])
@pytest.mark.parametrize("value", [0, -1, 255, 2.0])
def test_leaf_spine__bad_flow(key: str, value: Any) -> None:
    with pytest.raises(TopologyError, match=f"^{key}: {value} is not an integer between 1 and 254$"):
        leaf_spine(**{key: value})


def test_reference__has_the_documented_parameters() -> None:
    topology = reference()
    assert (len(topology.leaves), len(topology.spines), topology.hosts) == (2, 4, ("h1", "h2"))
    assert (topology.switch_of("h1"), topology.switch_of("h2")) == ("leaf1", "leaf2")
    assert topology.mtu == 9000
    shaped = [shape for link in topology.links if link.shaped for shape in (link.shape_ab, link.shape_ba)]
    assert len(shaped) == 16
    assert set(shaped) == {Shape(delay_us=500, rate_bps=250_000_000, limit_packets=10)}
    assert reference(name="other") == replace(topology, name="other")


def test_with_buffer__is_one_path_bdp_beyond_the_delay_line() -> None:
    shape = with_buffer(Shape(delay_us=10_000, rate_bps=100_000_000), mtu=1500)
    in_flight_bytes, bdp_bytes = 125_000, 500_000  # rate x 10 ms, rate x 40 ms
    assert (shape.limit_packets - 2) * 1514 < in_flight_bytes + bdp_bytes <= (shape.limit_packets - 1) * 1514


def test_with_buffer__unchanged_without_a_rate() -> None:
    assert with_buffer(SHAPE, mtu=1500) == SHAPE


def test_link__either_order_is_the_same_link() -> None:
    made = leaf_spine(spines=2)
    assert made.link("spine2-leaf1") is made.link("leaf1-spine2")
    assert made.canonical_name("spine2-leaf1") == "leaf1-spine2"
    assert made.canonical_name("spine2") == "spine2"
    with pytest.raises(TopologyError, match=r"^x-y: neither a link nor a node"):
        made.canonical_name("x-y")
