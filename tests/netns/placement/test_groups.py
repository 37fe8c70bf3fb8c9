"""netns.placement.groups: leaders, unhealthy nodes, growth; requests share the room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netns.inventory.nodes import HOSTNAME_LABEL, Node
from netns.placement.groups import Results, assign_all
from netns.placement.model import (
    DomainAssignment,
    PlacementRequest,
    Profile,
    Replacement,
    Slice,
    TopologyAssignment,
    Unplaceable,
    Usage,
)
from tests.netns.placement_cluster import BLOCK, LEVELS, RACK, clusters, counts, node

HOSTS = (HOSTNAME_LABEL,)


def placed(
    nodes: Sequence[Node],
    *requests: PlacementRequest,
    profile: Profile | None = None,
    unhealthy: Replacement | None = None,
) -> Results:
    return assign_all(
        nodes, usage=[], requests=requests, levels=LEVELS, profile=profile or Profile(), replacement=unhealthy
    )


def at(**pods: int) -> TopologyAssignment:
    return TopologyAssignment(HOSTS, tuple(DomainAssignment((host,), count) for host, count in pods.items()))


def pair(
    workers: int, *, cpu: int = 1, leader_cpu: int = 1, mode: str = "required", level: str = RACK
) -> list[PlacementRequest]:
    return [
        PlacementRequest("leader", 1, {"cpu": leader_cpu}, mode, level, group="g"),  # type: ignore[arg-type]  # a mode
        PlacementRequest("workers", workers, {"cpu": cpu}, mode, level, group="g"),  # type: ignore[arg-type]  # a mode
    ]


def test_leader__is_the_smaller_request_in_any_order() -> None:
    nodes = [node("b1/r1/x1", cpu=3)]
    assert placed(nodes, *pair(2)) == placed(nodes, *reversed(pair(2)))


def test_leader__skips_a_domain_where_workers_fit_only_without_it() -> None:
    nodes = [node("b1/small/a", cpu=3), node("b1/small/b", cpu=28), node("b1/large/c", cpu=60)]
    found = placed(nodes, *pair(2, cpu=5, leader_cpu=25))
    assert (counts(found["leader"]), counts(found["workers"])) == ({"c": 1}, {"c": 2})


def test_leader__without_room_fails_both() -> None:
    nodes = [node("b1/r1/x1", cpu=4)]
    found = placed(nodes, *pair(4, leader_cpu=10))
    assert str(found["leader"]) == str(found["workers"]) == 'topology "default" allows to fit only 4 out of 4 pod(s)'


def test_leader__of_more_than_one_pod_bad_flow() -> None:
    leader, workers = pair(3)
    found = placed([node("b1/r1/x1", cpu=9)], replace(leader, count=2), workers)
    assert str(found["workers"]) == "leader: the leader of a group is 1 pod, not 2"


def test_leader__workers_in_slices_on_several_hosts() -> None:
    nodes = [node(f"b1/r1/x{index}", cpu=20, gpu=gpu) for index, gpu in enumerate((4, 2, 2, 2), 1)]
    workers = PlacementRequest(
        "workers", 6, {"cpu": 1, "gpu": 1}, "preferred", BLOCK, (Slice(HOSTNAME_LABEL, 2),), group="g"
    )
    leader = PlacementRequest("leader", 1, {"cpu": 1}, "preferred", BLOCK, group="g")
    found = placed(nodes, leader, workers)
    assert (counts(found["leader"]), counts(found["workers"])) == ({"x1": 1}, {"x1": 4, "x2": 2})


@given(
    nodes=clusters(),
    count=st.integers(1, 8),
    worker_cpu=st.integers(0, 1),
    cpu=st.integers(0, 4),
    mode=st.sampled_from(["required", "preferred", "unconstrained"]),
    level=st.sampled_from(LEVELS),
    profile=st.builds(Profile, mixed=st.booleans(), balanced=st.booleans()),
)
def test_leader__never_over_capacity_and_all_or_nothing(
    nodes: list[Node], count: int, worker_cpu: int, cpu: int, mode: str, level: str, profile: Profile
) -> None:
    requests = pair(count, cpu=worker_cpu, leader_cpu=cpu, mode=mode, level=level)
    found = placed(nodes, *requests, profile=profile)
    if isinstance(found["workers"], Unplaceable):
        assert found["leader"] == found["workers"]
        return
    pods = Counter(counts(found["workers"]))
    assert (pods.total(), found["leader"].count) == (count, 1)  # type: ignore[union-attr]  # an assignment, like the other
    slots = pods + Counter(counts(found["leader"]))
    cpus = Counter({host: worker_cpu * taken for host, taken in pods.items()})
    cpus.update(dict.fromkeys(counts(found["leader"]), cpu))
    room = {each.name: each for each in nodes}
    assert all(taken <= room[host].allocatable["cpu"] for host, taken in cpus.items())
    assert all(taken <= room[host].allocatable["pods"] for host, taken in slots.items())


RACKS = [node(f"b1/r{rack}/x{rack}{host}", cpu=4) for rack in (1, 2) for host in (1, 2, 3)]


def moved(
    request: PlacementRequest, existing: TopologyAssignment, *, unhealthy: str = "x11", nodes: Sequence[Node] = RACKS
) -> TopologyAssignment | Unplaceable:
    """Replace the node `unhealthy` of `existing`; pods on other nodes stay."""
    return assign_all(
        [each for each in nodes if each.name != unhealthy],
        usage=[Usage(request.requests, domain.count, domain=domain.values) for domain in existing.domains],
        requests=[request],
        levels=LEVELS,
        replacement=Replacement(unhealthy, {request.name: existing}),
    )[request.name]


def test_replacement__moves_pods_of_the_unhealthy_node_within_the_required_domain() -> None:
    request = PlacementRequest("main", 6, {"cpu": 1}, "required", RACK)
    assert counts(moved(request, at(x11=4, x12=2))) == {"x12": 2, "x13": 4}
    assert str(moved(request, at(x11=4, x12=2), nodes=[*RACKS[:2], node("b1/r2/x9", cpu=9)])) == (
        'topology "default" allows to fit only 2 out of 4 pod(s). Total nodes: 2; excluded: topologyDomain: 1'
    )


def test_replacement__preferred_may_use_any_domain() -> None:
    request = PlacementRequest("main", 4, {"cpu": 2}, "preferred", RACK)
    nodes = [each for each in RACKS if each.name != "x12"]
    assert counts(moved(request, at(x11=2, x13=2), nodes=nodes)) == {"x13": 2, "x21": 2}


def test_replacement__a_broken_slice_is_made_whole_where_it_was() -> None:
    request = PlacementRequest("main", 4, {"cpu": 4}, "preferred", BLOCK, (Slice(RACK, 2),))
    assert counts(moved(request, at(x11=1, x12=1, x21=1, x22=1))) == {"x12": 1, "x13": 1, "x21": 1, "x22": 1}


def test_replacement__of_nested_slices_only_the_innermost_broken_one_confines() -> None:
    request = PlacementRequest("main", 8, {"cpu": 1}, "required", BLOCK, (Slice(RACK, 4), Slice(HOSTNAME_LABEL, 2)))
    assert counts(moved(request, at(x11=2, x12=2, x21=4))) == {"x12": 4, "x21": 4}
    tight = [node("b1/r1/x12", cpu=2), node("b1/r1/x13", cpu=1), *RACKS[3:]]
    assert str(moved(request, at(x11=2, x12=2, x21=4), nodes=tight)) == (
        'topology "default" doesn\'t allow to fit any of 1 slice(s). '
        'Total nodes: 5; excluded: resource "cpu": 1, topologyDomain: 3'
    )


def test_replacement__bad_flow() -> None:
    request = PlacementRequest("main", 3, {"cpu": 1}, "required", RACK)
    assert str(moved(request, at(x11=1, gone=2))) == (
        "Cannot replace the node, because the existing topologyAssignment is invalid, "
        "as it contains the stale domain gone"
    )
    assert str(moved(request, at(x12=3))) == "cannot find replacement assignment for unhealthy node: x11"
    slices = replace(request, slices=(Slice(RACK, 3),))
    assert str(moved(slices, at(x11=2))) == "cannot find replacement assignment for unhealthy node: x11"
    unknown = replace(slices, slices=(Slice("zone", 3),))
    assert str(moved(unknown, at(x11=1, x12=2))) == "cannot find replacement assignment for unhealthy node: x11"


def test_replacement__requests_without_an_assignment_are_left_alone_and_the_first_failure_ends_it() -> None:
    one, two = (PlacementRequest(name, 5, {"cpu": 1}, "required", HOSTNAME_LABEL) for name in ("one", "two"))
    unhealthy = Replacement("x11", {"two": at(x11=5)})
    assert list(placed(RACKS[1:], one, two, unhealthy=unhealthy)) == ["two"]


ELASTIC = Profile(elastic=True)


@pytest.mark.parametrize(
    ("count", "found"),
    [
        (6, {"x21": 3, "x22": 3}),
        (3, {"x21": 3}),
        (4, {"x21": 3, "x22": 1}),
        (8, {"x21": 3, "x22": 3, "x23": 2}),
    ],
)
def test_growth__keeps_running_pods(count: int, found: dict[str, int]) -> None:
    nodes = [replace(each, allocatable={"cpu": 3, "pods": 9}) for each in RACKS]
    request = PlacementRequest("main", count, {"cpu": 1}, "preferred", RACK, previous=at(x21=3, x22=3))
    assert counts(placed(nodes, request, profile=ELASTIC)["main"]) == found


def test_growth__without_room_fails_and_stale_assignment_is_replaced() -> None:
    request = PlacementRequest("main", 30, {"cpu": 1}, "preferred", RACK, previous=at(x11=4))
    assert (
        str(placed(RACKS, request, profile=ELASTIC)["main"])
        == 'topology "default" allows to fit only 20 out of 26 pod(s). Total nodes: 6; excluded: resource "cpu": 1'
    )
    afresh = replace(request, count=2, previous=at(gone=4))
    assert counts(placed(RACKS, afresh, profile=ELASTIC)["main"]) == {"x11": 2}
    ignored = replace(request, count=2, previous=at(x22=2))
    assert counts(placed(RACKS, ignored)["main"]) == {"x11": 2}


def test_growth__with_a_leader_keeps_it_too() -> None:
    leader, workers = pair(6, mode="preferred")
    found = placed(RACKS, replace(leader, previous=at(x21=1)), replace(workers, previous=at(x21=3)), profile=ELASTIC)
    assert counts(found["leader"]) == {"x21": 1}
    assert sum(counts(found["workers"]).values()) == 6
    assert counts(found["workers"])["x21"] == 3
    without = placed(RACKS, leader, replace(workers, previous=at(x21=3)), profile=ELASTIC)
    assert sum(counts(without["leader"]).values()) == 1
    same = placed(
        RACKS, replace(leader, previous=at(x13=1)), replace(workers, previous=at(x21=4, x22=2)), profile=ELASTIC
    )
    assert (counts(same["leader"]), counts(same["workers"])) == ({"x13": 1}, {"x21": 4, "x22": 2})


def test_growth__by_a_part_of_a_slice_places_all_anew() -> None:
    request = PlacementRequest("main", 4, {"cpu": 1}, "preferred", BLOCK, (Slice(RACK, 2),), previous=at(x21=3))
    assert counts(placed(RACKS, request, profile=ELASTIC)["main"]) == {"x11": 4}


def test_assign_all__no_levels_and_no_requests_bad_flow() -> None:
    assert assign_all(RACKS, usage=[], requests=[], levels=()) == {}
    found = assign_all(RACKS, usage=[], requests=[PlacementRequest("main")], levels=())
    assert str(found["main"]).startswith("levels: none given")
