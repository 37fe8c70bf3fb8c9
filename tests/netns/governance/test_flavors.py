"""The search for flavors: which do, which end the search, and where it goes on."""

from __future__ import annotations

import pytest

from netns.governance.model import Fungibility, Preemption, Quota, ResourceGroup
from netns.inventory.nodes import Taint
from netns.placement.model import Affinity, Expression, PlacementRequest, ResourceFlavor, Term, Toleration
from tests.netns.governance_world import group, once, queue, reasons, runs, waits, world

PLAIN = ResourceFlavor("plain", {"zone": "a"})
TAINTED = ResourceFlavor("tainted", {"zone": "b"}, (Taint("spot", "yes"),))
TOLERANT = (Toleration("spot", "Exists"),)


def _in(key: str, *values: str) -> Affinity:
    return Affinity(required=(Term((Expression(key, "In", values),)),))


@pytest.mark.parametrize(
    ("podset", "flavor"),
    [
        (PlacementRequest("main", 1, {"cpu": 1}), "plain"),
        (PlacementRequest("main", 1, {"cpu": 1}, tolerations=TOLERANT), "tainted"),
        (PlacementRequest("main", 1, {"cpu": 1}, tolerations=TOLERANT, node_selector={"zone": "a"}), "plain"),
        (PlacementRequest("main", 1, {"cpu": 1}, tolerations=TOLERANT, affinity=_in("zone", "a")), "plain"),
        (PlacementRequest("main", 1, {"cpu": 1}, tolerations=TOLERANT, affinity=_in("unknown", "a")), "tainted"),
        (PlacementRequest("main", 1, {"cpu": 11}), None),
        (PlacementRequest("main", 1, {"cpu": 11}, tolerations=TOLERANT), None),
    ],
)
def test_the_flavor_of_a_pod_set(podset: PlacementRequest, flavor: str | None) -> None:
    state = world(queue("q", groups=(group(tainted=10, plain=10),)), flavors=(PLAIN, TAINTED))
    waits(state, "in", "q", podsets=(podset,))
    found = once(state).admitted
    assert [dict(each.admission.podsets[0].flavors) for each in found] == ([] if flavor is None else [{"cpu": flavor}])


@pytest.mark.parametrize(
    ("need", "selector", "reason"),
    [(11, {}, "ExceedsMaxQuota"), (10, {}, "WaitingForQuota"), (1, {"zone": "x"}, "NoMatchingFlavor")],
)
def test_why_nothing_fits(need: int, selector: dict[str, str], reason: str) -> None:
    """Of a group's flavors the mildest reason counts: taints alone would be NoMatchingFlavor."""
    state = world(queue("q", groups=(group(tainted=20, plain=10),)), flavors=(PLAIN, TAINTED))
    runs(state, "running", "q", 5, flavor="plain")
    waits(state, "in", "q", podsets=(PlacementRequest("main", 1, {"cpu": need}, node_selector=selector),))
    assert reasons(once(state)) == {"in": reason}


@pytest.mark.parametrize(
    ("fungibility", "flavor"),
    [
        (Fungibility(), "one"),
        (Fungibility(when_can_borrow="TryNextFlavor"), "two"),
    ],
)
def test_borrowing_ends_the_search_or_not(fungibility: Fungibility, flavor: str) -> None:
    state = world(
        queue("q", groups=(group(one=5, two=10),), fungibility=fungibility),
        queue("lender", groups=(group(one=5, two=0),)),
    )
    waits(state, "in", "q", 8)
    (found,) = once(state).admitted
    assert found.admission.podsets[0].flavors == {"cpu": flavor}


@pytest.mark.parametrize(
    ("when", "expected"), [("MayStopSearch", ["WaitingForPreemptedWorkloads"]), ("TryNextFlavor", [])]
)
def test_preemption_ends_the_search_or_not(when: str, expected: list[str]) -> None:
    rules = Fungibility(when_can_preempt=when)
    state = world(
        queue("q", groups=(group(one=10, two=10),), fungibility=rules, preemption=Preemption("LowerPriority"))
    )
    runs(state, "running", "q", 10, flavor="one")
    waits(state, "in", "q", 10, priority=1)
    assert list(reasons(once(state)).values()) == expected


def test_pods_count_where_the_queue_covers_them() -> None:
    quotas = {"cpu": Quota(100), "pods": Quota(3)}
    state = world(queue("q", groups=(ResourceGroup(("cpu", "pods"), (("f", quotas),)),)))
    waits(state, "in", "q", podsets=(PlacementRequest("main", 4, {"cpu": 1}),))
    waits(state, "fits", "q", podsets=(PlacementRequest("main", 3, {"cpu": 1}),), created=1)
    assert reasons(once(state)) == {"in": "ExceedsMaxQuota"}
    (found,) = once(state).admitted
    assert found.admission.podsets[0].usage == {"cpu": 3, "pods": 3}


def test_pod_sets_of_one_group_get_one_flavor() -> None:
    podsets = (
        PlacementRequest("leader", 1, {"cpu": 1}, group="g"),
        PlacementRequest("workers", 2, {"cpu": 3}, group="g"),
    )
    state = world(queue("q", groups=(group(one=6, two=7),)))
    waits(state, "in", "q", podsets=podsets)
    (found,) = once(state).admitted
    assert {each.name: each.flavors["cpu"] for each in found.admission.podsets} == {"leader": "two", "workers": "two"}


def test_a_resource_that_nothing_covers_is_refused_unless_it_is_zero() -> None:
    state = world(queue("q"))
    waits(state, "in", "q", podsets=(PlacementRequest("main", 1, {"cpu": 1, "gpu": 1}),))
    waits(state, "zero", "q", podsets=(PlacementRequest("main", 1, {"cpu": 1, "gpu": 0}),), created=1)
    outcome = once(state)
    assert reasons(outcome) == {"in": "Pending"}
    assert outcome.waiting[0].message.endswith("resource gpu unavailable in ClusterQueue")
    assert [each.workload for each in once(state).admitted] == ["n/zero"]


def test_the_search_goes_on_behind_the_last_flavor() -> None:
    """Victims in the first flavor that cannot all be had: the next cycle looks at the second."""
    state = world(
        queue("q", groups=(group(one=10, two=10),), fungibility=Fungibility("MayStopSearch", "MayStopSearch"))
    )
    runs(state, "a", "q", 10, flavor="one")
    workload = waits(state, "in", "q", 5)
    assert [each.admission.podsets[0].flavors["cpu"] for each in once(state).admitted] == ["two"]
    assert workload.tried is None
