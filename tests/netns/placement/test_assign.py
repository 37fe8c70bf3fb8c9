"""netns.placement.assign: Kueue's own cases, and properties of every assignment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netns.inventory.nodes import HOSTNAME_LABEL, PODS, Node
from netns.placement.assign import assign
from netns.placement.groups import assign_all
from netns.placement.model import PlacementRequest, Profile, Slice, TopologyAssignment, Unplaceable
from tests.netns import kueue_cases as kueue
from tests.netns.placement_cluster import BLOCK, LEVELS, RACK, clusters, counts, node, requests, room, usages

PROFILES = st.builds(Profile, mixed=st.booleans(), balanced=st.booleans())


@pytest.mark.parametrize("case", kueue.CASES, ids=lambda case: case["id"])
def test_kueues_facts(case: dict[str, Any]) -> None:
    found = assign_all(
        kueue.nodes(case),
        usage=kueue.usage(case),
        requests=kueue.requests(case),
        levels=case["levels"],
        profile=kueue.profile(case),
        flavor=kueue.flavor(case),
    )
    for name, expected in case["expect"].items():
        if "assignment" in expected:
            assert found[name] == kueue.assignment(expected["assignment"]), str(found[name])
        else:
            failure = expected["failure"]
            unplaceable = found[name]
            assert isinstance(unplaceable, Unplaceable)
            assert kueue.facts(unplaceable, failure) == {key: failure[key] for key in kueue.facts(unplaceable, failure)}
            if "excluded" not in failure:
                assert not unplaceable.excluded


def paths(nodes: Sequence[Node], found: TopologyAssignment) -> list[tuple[str, ...]]:
    by_host = {each.name: tuple(each.labels[level] for level in LEVELS) for each in nodes}
    return [by_host[domain.values[-1]] for domain in found.domains for _ in range(domain.count)]


def shared(nodes: Sequence[Node], found: TopologyAssignment) -> int:
    """Levels that all pods share."""
    return sum(len({path[: depth + 1] for path in paths(nodes, found)}) == 1 for depth in range(len(LEVELS)))


@given(data=st.data(), nodes=clusters(), request=requests(), profile=PROFILES)
def test_assign__never_over_capacity_and_all_or_nothing(
    data: st.DataObject, nodes: list[Node], request: PlacementRequest, profile: Profile
) -> None:
    usage = data.draw(usages(nodes))
    found = assign(nodes, usage=usage, request=request, levels=LEVELS, profile=profile)
    if isinstance(found, Unplaceable):
        assert found.kind == "not_fit"
        return
    assert found.count == request.count
    left = room(nodes, usage)
    for host, count in counts(found).items():
        assert count > 0
        assert request.requests["cpu"] * count <= left[host]["cpu"]
        assert count <= left[host][PODS]


@given(nodes=clusters(), request=requests(), profile=PROFILES)
def test_assign__required_is_one_domain(nodes: list[Node], request: PlacementRequest, profile: Profile) -> None:
    request = replace(request, mode="required", level=LEVELS[0] if request.slices else RACK)
    found = assign(nodes, usage=[], request=request, levels=LEVELS, profile=profile)
    if isinstance(found, TopologyAssignment):
        depth = LEVELS.index(request.level or "") + 1
        assert len({path[:depth] for path in paths(nodes, found)}) == 1


@given(nodes=clusters(), request=requests(), profile=PROFILES)
def test_assign__slices_lie_in_one_domain_each(nodes: list[Node], request: PlacementRequest, profile: Profile) -> None:
    found = assign(nodes, usage=[], request=request, levels=LEVELS, profile=profile)
    if isinstance(found, TopologyAssignment):
        for layer in request.slices:
            depth = LEVELS.index(layer.level) + 1
            pods = Counter(path[:depth] for path in paths(nodes, found))
            assert all(number % layer.size == 0 for number in pods.values())


@given(nodes=clusters(), count=st.integers(1, 12), level=st.sampled_from(LEVELS), profile=PROFILES)
def test_assign__preferred_is_never_worse_than_unconstrained(
    nodes: list[Node], count: int, level: str, profile: Profile
) -> None:
    """In shared layers down to the preferred one, or the one above it where the pods are spread evenly below that.

    And it is placed whenever the unconstrained request is.
    """
    request = PlacementRequest(count=count, requests={"cpu": 1}, mode="preferred", level=level)
    preferred = assign(nodes, usage=[], request=request, levels=LEVELS, profile=profile)
    free = assign(
        nodes, usage=[], request=replace(request, mode="unconstrained", level=None), levels=LEVELS, profile=profile
    )
    if isinstance(free, Unplaceable):
        assert isinstance(preferred, Unplaceable)
        return
    assert isinstance(preferred, TopologyAssignment)
    depth = LEVELS.index(level) + (0 if profile.balanced else 1)
    assert shared(nodes, preferred) >= min(depth, shared(nodes, free))


@settings(max_examples=400)  # only ties between domains show a difference
@given(data=st.data(), nodes=clusters(), request=requests(), profile=PROFILES)
def test_assign__order_of_nodes_and_usage_does_not_matter(
    data: st.DataObject, nodes: list[Node], request: PlacementRequest, profile: Profile
) -> None:
    usage = data.draw(usages(nodes))
    found = assign(nodes, usage=usage, request=request, levels=LEVELS, profile=profile)
    again = assign(
        data.draw(st.permutations(nodes)),
        usage=data.draw(st.permutations(usage)),
        request=request,
        levels=LEVELS,
        profile=profile,
    )
    assert found == again


@given(nodes=clusters(), request=requests())
def test_assign__unplaceable_reports_at_most_the_free_room(nodes: list[Node], request: PlacementRequest) -> None:
    request = replace(request, slices=(), mode="unconstrained", level=None)
    found = assign(nodes, usage=[], request=request, levels=LEVELS)
    slots = sum(min(each.allocatable["cpu"] // request.requests["cpu"], each.allocatable[PODS]) for each in nodes)
    assert isinstance(found, Unplaceable) == (slots < request.count)
    if isinstance(found, Unplaceable):
        assert (found.fit, found.wanted, found.unit) == (slots, request.count, "pod")


RACKS = [
    node(f"b{block}/r{rack}/x{block}{rack}{host}", cpu=2) for block in (1, 2) for rack in (1, 2) for host in (1, 2)
]


def test_assign__unconstrained_fills_the_fullest_first_and_without_the_mixed_profile_the_emptiest() -> None:
    nodes = [node("b1/r1/x1", cpu=1), node("b1/r1/x2", cpu=5), node("b1/r2/x3", cpu=3)]
    request = PlacementRequest(count=5, requests={"cpu": 1}, mode="unconstrained")
    assert counts(assign(nodes, usage=[], request=request, levels=LEVELS)) == {"x2": 5}
    request = replace(request, count=6)
    assert counts(assign(nodes, usage=[], request=request, levels=LEVELS)) == {"x1": 1, "x2": 2, "x3": 3}
    found = assign(nodes, usage=[], request=request, levels=LEVELS, profile=Profile(mixed=False))
    assert counts(found) == {"x1": 1, "x2": 5}


def test_assign__nested_slices() -> None:
    request = PlacementRequest(
        count=8, requests={"cpu": 1}, mode="required", level=BLOCK, slices=(Slice(RACK, 4), Slice(HOSTNAME_LABEL, 2))
    )
    found = assign(RACKS, usage=[], request=request, levels=LEVELS)
    assert counts(found) == {"x111": 2, "x112": 2, "x121": 2, "x122": 2}


def test_assign__without_the_gate_inner_slices_do_not_count() -> None:
    nodes = [node("b1/r1/x1", cpu=3), node("b1/r1/x2", cpu=1)]
    request = PlacementRequest(
        count=4, requests={"cpu": 1}, mode="required", level=BLOCK, slices=(Slice(RACK, 4), Slice(HOSTNAME_LABEL, 2))
    )
    assert isinstance(assign(nodes, usage=[], request=request, levels=LEVELS), Unplaceable)
    found = assign(nodes, usage=[], request=request, levels=LEVELS, profile=Profile(multi_layer=False))
    assert counts(found) == {"x1": 3, "x2": 1}


def test_assign__nodes_without_labels_unready_or_cordoned_are_no_part_of_it() -> None:
    nodes = [
        replace(RACKS[0], ready=False),
        replace(RACKS[1], unschedulable=True),
        replace(RACKS[2], labels={HOSTNAME_LABEL: "x"}),
        RACKS[3],
    ]
    found = assign(nodes, usage=[], request=PlacementRequest(count=2, requests={"cpu": 1}), levels=LEVELS)
    assert counts(found) == {RACKS[3].name: 2}
    none = assign(nodes[:3], usage=[], request=PlacementRequest(mode="required", level=RACK), levels=LEVELS)
    assert str(none) == f"no topology domains at level: {RACK}"
