"""netns.placement.balanced: even shares over the fewest domains, under one domain of the level above."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from netns.inventory.nodes import HOSTNAME_LABEL, Node
from netns.placement.assign import assign
from netns.placement.groups import assign_all
from netns.placement.model import PlacementRequest, Profile, Slice, TopologyAssignment
from tests.netns.placement_cluster import BLOCK, LEVELS, RACK, clusters, counts, node

BALANCED = Profile(balanced=True)


def test_balance__even_shares() -> None:
    """Of slices of two; by best fit the first rack gets three of the four."""
    nodes = [node(f"b1/r{rack}/x{rack}{host}", cpu=2) for rack in range(3) for host in range(3)]
    request = PlacementRequest(count=8, requests={"cpu": 1}, mode="preferred", level=RACK, slices=(Slice(RACK, 2),))
    levels = (BLOCK, RACK)
    assert counts(assign(nodes, usage=[], request=request, levels=levels)) == {"r0": 6, "r1": 2}
    assert counts(assign(nodes, usage=[], request=request, levels=levels, profile=BALANCED)) == {"r0": 4, "r1": 4}


def test_balance__remainder_on_the_first_domains() -> None:
    nodes = [node(f"b1/r{rack}/x{rack}", cpu=4) for rack in range(3)]
    request = PlacementRequest(count=7, requests={"cpu": 1}, mode="preferred", level=BLOCK)
    found = assign(nodes, usage=[], request=request, levels=LEVELS, profile=BALANCED)
    assert counts(found) == {"x0": 4, "x1": 3}


def test_balance__the_tightest_set_of_domains_that_will_do() -> None:
    nodes = [node("b1/r1/x1", cpu=9), node("b1/r1/x2", cpu=4), node("b1/r1/x3", cpu=4), node("b1/r1/x4", cpu=1)]
    request = PlacementRequest(count=8, requests={"cpu": 1}, mode="preferred", level=HOSTNAME_LABEL)
    assert counts(assign(nodes, usage=[], request=request, levels=LEVELS, profile=BALANCED)) == {"x1": 8}
    request = PlacementRequest(count=10, requests={"cpu": 1}, mode="preferred", level=HOSTNAME_LABEL)
    assert counts(assign(nodes, usage=[], request=request, levels=LEVELS, profile=BALANCED)) == {"x1": 6, "x2": 4}


def test_balance__a_family_with_a_higher_threshold_wins() -> None:
    nodes = [node("b1/r1/x1", cpu=5), node("b1/r2/x2", cpu=1), node("b2/r1/x3", cpu=3), node("b2/r2/x4", cpu=3)]
    request = PlacementRequest(count=6, requests={"cpu": 1}, mode="preferred", level=RACK)
    assert counts(assign(nodes, usage=[], request=request, levels=LEVELS, profile=BALANCED)) == {"x3": 3, "x4": 3}


def test_balance__falls_back_to_best_fit_where_no_family_holds_it() -> None:
    nodes = [node("b1/r1/x1", cpu=2), node("b2/r1/x2", cpu=3)]
    request = PlacementRequest(count=5, requests={"cpu": 1}, mode="preferred", level=RACK)
    assert counts(assign(nodes, usage=[], request=request, levels=LEVELS, profile=BALANCED)) == {"x1": 2, "x2": 3}


def test_balance__slices_and_the_leader() -> None:
    nodes = [node(f"b1/r{rack}/x{rack}", cpu=5) for rack in range(3)]
    workers = PlacementRequest(
        name="workers", count=8, requests={"cpu": 1}, mode="preferred", level=BLOCK, slices=(Slice(RACK, 2),), group="g"
    )
    leader = PlacementRequest(name="leader", count=1, requests={"cpu": 1}, mode="preferred", level=BLOCK, group="g")
    found = assign_all(nodes, usage=[], requests=[leader, workers], levels=LEVELS, profile=BALANCED)
    assert counts(found["workers"]) == {"x0": 4, "x1": 4}
    assert counts(found["leader"]) == {"x0": 1}


@given(nodes=clusters(), count=st.integers(1, 12), level=st.sampled_from(LEVELS))
def test_balance__places_whatever_best_fit_places(nodes: list[Node], count: int, level: str) -> None:
    request = PlacementRequest(count=count, requests={"cpu": 1}, mode="preferred", level=level)
    packed = assign(nodes, usage=[], request=request, levels=LEVELS)
    spread = assign(nodes, usage=[], request=request, levels=LEVELS, profile=BALANCED)
    assert isinstance(packed, TopologyAssignment) == isinstance(spread, TopologyAssignment)


@given(nodes=clusters(), size=st.integers(1, 3), slices=st.integers(1, 4), cpu=st.integers(0, 3))
def test_balance__with_a_leader_never_over_capacity(nodes: list[Node], size: int, slices: int, cpu: int) -> None:
    workers = PlacementRequest("w", size * slices, {"cpu": 1}, "preferred", RACK, (Slice(RACK, size),), group="g")
    leader = PlacementRequest("l", 1, {"cpu": cpu}, "preferred", RACK, group="g")
    found = assign_all(nodes, usage=[], requests=[workers, leader], levels=LEVELS, profile=BALANCED)
    if not isinstance(found["w"], TopologyAssignment):
        return
    assert (found["w"].count, sum(counts(found["l"]).values())) == (size * slices, 1)
    pods = Counter(counts(found["w"]))
    for host in counts(found["l"]):
        pods[host] += cpu
    room = {each.name: each.allocatable["cpu"] for each in nodes}
    assert all(taken <= room[host] for host, taken in pods.items())
