"""Flavors with a topology: quota first, then a place; the usage of what runs counts."""

from __future__ import annotations

from typing import Any

import pytest

from netns.governance import State
from netns.governance.model import Preemption, Quota, ResourceGroup
from netns.governance.room import Room
from netns.inventory.fabric_layers import nodes_of
from netns.inventory.layers import levels_of
from netns.placement.model import DEFAULT_FLAVOR, PlacementRequest, ResourceFlavor
from netns.topology.model import leaf_spine
from tests.netns.governance_world import group, once, preempted, queue, settle, waits, world

NODES = nodes_of(leaf_spine(leaves=2, spines=2, hosts_per_leaf=4))
LEVELS = levels_of(NODES)
LEAF = LEVELS[-2]
REQUIRED = {"mode": "required", "level": LEAF}


def _world(quota: int = 8, **more: object) -> State:
    room = Room(NODES, levels=LEVELS, flavor=DEFAULT_FLAVOR)
    flavors = [ResourceFlavor("f", topology="fabric")]
    return world(queue("q", quota, None, **more), flavors=flavors, rooms={"f": room})


def _podset(count: int, mode: str = "required") -> tuple[PlacementRequest, ...]:
    return (PlacementRequest("main", count, {"cpu": 1}, mode, LEAF),)  # type: ignore[arg-type]


def _leaves(state: State, name: str) -> set[str]:
    admission = state.workloads[f"n/{name}"].admission
    assert admission is not None
    placed = admission.podsets[0].topology
    assert placed is not None
    by_host = {node.name: node.labels[LEAF] for node in NODES}
    return {by_host[domain.values[-1]] for domain in placed.domains}


def test_jobs_get_leaves_of_their_own() -> None:
    state = _world()
    for name in ("one", "two"):
        waits(state, name, "q", podsets=_podset(4))
    settle(state)
    assert _leaves(state, "one") != _leaves(state, "two")
    assert len(_leaves(state, "one")) == len(_leaves(state, "two")) == 1


def test_who_takes_the_leaf_is_preempted_though_quota_is_left() -> None:
    state = _world(preemption=Preemption("LowerPriority"))
    for number in range(2):
        waits(state, f"three{number}", "q", podsets=_podset(3), created=number)
    settle(state)
    waits(state, "high", "q", podsets=_podset(2), priority=1)
    assert len(preempted(once(state))) == 1
    settle(state)
    assert len(_leaves(state, "high")) == 1


@pytest.mark.parametrize(
    ("flavor", "wish", "rooms", "why"),
    [
        ("fabric", {}, True, 'Flavor "f" supports only TopologyAwareScheduling'),
        (None, REQUIRED, True, 'Flavor "f" does not support TopologyAwareScheduling'),
        ("fabric", REQUIRED, False, 'Flavor "f" information missing in TAS cache'),
        ("fabric", {**REQUIRED, "level": "x"}, True, 'Flavor "f" does not contain the requested level'),
    ],
)
def test_why_a_flavor_is_not_for_a_job(flavor: str | None, wish: dict[str, Any], *, rooms: bool, why: str) -> None:
    flavors = [ResourceFlavor("f", topology=flavor), ResourceFlavor("g")]
    groups = (group(f=8), ResourceGroup(("gpu",), (("g", {"gpu": Quota(8)}),)))
    state = world(
        queue("q", cohort=None, groups=groups),
        flavors=flavors,
        rooms={"f": Room(NODES, levels=LEVELS, flavor=DEFAULT_FLAVOR)} if rooms else {},
    )
    waits(state, "in", "q", podsets=(PlacementRequest("main", 1, {"cpu": 1}, **wish),))
    (waiting,) = once(state).waiting
    assert why in waiting.message
