"""netns.topology.dumbbell: dumbbells, and spines that differ."""

from __future__ import annotations

from typing import Any

import pytest

from netns.errors import ShapeError, TopologyError
from netns.lab.plan import plan
from netns.netem.shape import Shape
from netns.topology.dumbbell import dumbbell, with_paths
from netns.topology.model import leaf_spine

NARROW = Shape(delay_us=10_000, rate_bps=50_000_000, limit_packets=20)


def test_dumbbell__half_of_the_hosts_on_each_side() -> None:
    made = dumbbell(hosts_per_side=2, bottleneck=NARROW, access=Shape(delay_us=5))
    assert [made.switch_of(host) for host in made.hosts] == ["left", "left", "right", "right"]
    assert made.link("left-right").shape_ab == made.link("left-right").shape_ba == NARROW
    assert made.link("h3-right").shape_ba == Shape(delay_us=5)
    assert made.link("h3-right").shape_ab is None
    assert plan(made, "relay")


@pytest.mark.parametrize("count", [0, 255, True, "2"])
def test_dumbbell__bad_flow(count: Any) -> None:
    with pytest.raises(TopologyError, match=r"^hosts_per_side: .* is not an integer between 1 and 254"):
        dumbbell(hosts_per_side=count, bottleneck=NARROW)


def test_with_paths__changes_the_links_of_a_spine_and_no_other() -> None:
    shape = Shape(delay_us=500, rate_bps=250_000_000, limit_packets=10)
    made = with_paths(leaf_spine(shape=shape), {"spine2": {"rate": "25mbit"}, "spine3": {"delay": "5ms"}})
    assert {link.shape_ab for link in made.links_of["spine1"]} == {shape}
    assert {link.shape_ba for link in made.links_of["spine2"]} == {shape.changed({"rate": "25mbit"})}
    assert {link.shape_ab for link in made.links_of["spine3"]} == {shape.changed({"delay": "5ms"})}


def test_with_paths__bad_flow() -> None:
    with pytest.raises(TopologyError, match=r"^paths.spine9: no such spine; the spines are: spine1, "):
        with_paths(leaf_spine(), {"spine9": {}})
    with pytest.raises(ShapeError, match=r"^paths.spine1.loss: 120 % is not between"):
        with_paths(leaf_spine(), {"spine1": {"loss": "120%"}})
