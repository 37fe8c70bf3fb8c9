"""Topologies in a condition, and what an empty fabric could do."""

from __future__ import annotations

from math import inf

import pytest

from netns.errors import ShapeError
from netns.netem.shape import Shape
from netns.topology.clos import clos
from netns.topology.dumbbell import dumbbell
from netns.topology.model import leaf_spine, reference
from srd.compare.fabric import Ideal, conditioned, links_that_can_fail, uplink_bps, ways_up
from srd.compare.grid import Condition


def test_conditioned__a_path_has_the_shape_once_each_way() -> None:
    made = conditioned(reference(), Condition({"loss": "1%"}), name="other", seed=7)
    assert (made.name, made.seed) == ("other", 7)
    for link in made.links:
        for sender, shape in ((link.a, link.shape_ab), (link.b, link.shape_ba)):
            if shape is not None:
                assert shape.loss_percent == (1.0 if sender in made.spines else 0.0)


def test_conditioned__without_spines_on_each_shaped_direction() -> None:
    made = conditioned(dumbbell(bottleneck=Shape(delay_us=1000)), Condition({"loss": "1%"}), name="d", seed=1)
    (link,) = [link for link in made.links if link.shaped]
    assert link.shape_ab == link.shape_ba == Shape(delay_us=1000, loss_percent=1.0)


def test_conditioned__a_longer_delay_has_room() -> None:
    before = reference()
    made = conditioned(before, Condition({"delay": "50ms"}), name="d", seed=1)
    assert made.link("spine1-leaf1").shape_ba != before.link("spine1-leaf1").shape_ba
    limits = {shape.limit_packets for link in made.links for shape in (link.shape_ab, link.shape_ba) if shape}
    assert max(limits) > 50e-3 * 250e6 / 8 / 9014
    kept = conditioned(before, Condition({"delay": "50ms", "limit": 5}), name="d", seed=1)
    assert 5 in {shape.limit_packets for link in kept.links for shape in (link.shape_ab, link.shape_ba) if shape}


def test_conditioned__a_wrong_shape_is_an_error() -> None:
    with pytest.raises(ShapeError, match="loss"):
        conditioned(reference(), Condition({"loss": "300%"}), name="d", seed=1)


def test_ideal__all_paths_and_one_round_trip() -> None:
    ideal = Ideal(reference())
    rtt_s, capacity_bps = ideal.path("h1", "h2")
    assert (rtt_s, capacity_bps) == pytest.approx((0.002, 1e9))
    assert ideal.seconds("h1", "h2", size_bytes=125_000_000) == pytest.approx(1.002)


def test_ideal__the_slowest_link_of_a_path_decides() -> None:
    fabric = clos(name="clos", blocks=2, leaves_per_block=1, hosts_per_leaf=1, aggregations_per_block=2, spines=2)
    assert Ideal(fabric).path("h1", "h2")[1] == inf  # no rate anywhere
    assert Ideal(fabric).seconds("h1", "h2", size_bytes=10**9) == 0.0
    narrow = dumbbell(bottleneck=Shape(rate_bps=10_000_000), access=Shape(rate_bps=4_000_000))
    assert Ideal(narrow).path("h1", "h2")[1] == 4_000_000


def test_ideal__a_flow_over_unequal_paths_is_their_sum() -> None:
    fabric = leaf_spine(name="f", spines=3, shape=Shape(rate_bps=1_000_000))
    slow = conditioned(fabric, Condition({"rate": "500kbit"}), name="f", seed=1)
    assert Ideal(slow).path("h1", "h2")[1] == 3 * 500_000


def test_uplink__of_all_leaves() -> None:
    assert uplink_bps(reference()) == 2 * 4 * 250e6
    assert uplink_bps(leaf_spine(name="f")) == inf


def test_ways_up__from_the_switches_over_the_hosts() -> None:
    two = reference()
    assert ways_up(two, ["h1"]) == [("leaf1", spine) for spine in two.spines]
    assert len(ways_up(two, two.hosts)) == 2 * 4
    fabric = clos(name="clos", blocks=2, leaves_per_block=1, hosts_per_leaf=1, aggregations_per_block=2, spines=2)
    up = ways_up(fabric, ["h1"])
    assert {spine for _, spine in up} == {*fabric.spines}
    assert {switch for switch, _ in up} == {link.other("leaf1") for link in fabric.links_of["leaf1"]} - {"h1"}
    assert ways_up(dumbbell(bottleneck=Shape()), ["h1"]) == []


def test_links_that_can_fail__are_those_between_switches() -> None:
    assert links_that_can_fail(dumbbell(bottleneck=Shape())) == ["left-right"]
