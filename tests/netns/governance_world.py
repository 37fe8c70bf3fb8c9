"""Small worlds of queues for tests of single rules: one flavor `f`, one resource `cpu`, unless said otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from netns.governance import Settings, State, apply, cycle
from netns.governance.apply import gone
from netns.governance.cycle import CycleOutcome
from netns.governance.model import (
    Admission,
    ClusterQueue,
    Cohort,
    LocalQueue,
    PodSetAdmission,
    Preemption,
    Quota,
    ResourceGroup,
    Workload,
    WorkloadCondition,
)
from netns.governance.room import Room
from netns.placement.model import PlacementRequest, ResourceFlavor

CPU = ("f", "cpu")
FAIR = Settings(fair_sharing=("LessThanOrEqualToFinalShare", "LessThanInitialShare"))


def group(**flavors: Quota | int) -> ResourceGroup:
    """One resource, `cpu`, with a quota a flavor."""
    quotas = {name: quota if isinstance(quota, Quota) else Quota(quota) for name, quota in flavors.items()}
    return ResourceGroup(("cpu",), tuple((name, {"cpu": quota}) for name, quota in quotas.items()))


def queue(name: str, quota: Quota | int = 10, cohort: str | None = "all", **more: Any) -> ClusterQueue:
    """A queue of one flavor, or of the groups given."""
    return ClusterQueue(name, cohort, more.pop("groups", (group(f=quota),)), **more)


def world(
    *queues: ClusterQueue,
    settings: Settings | None = None,
    cohorts: Iterable[Cohort] = (),
    flavors: Iterable[ResourceFlavor] | None = None,
    rooms: Mapping[str, Room] | None = None,
) -> State:
    """A state with a local queue `n/QUEUE` for each queue."""
    names = dict.fromkeys(name for each in queues for part in each.groups for name, _ in part.flavors)
    return State(
        settings or Settings(),
        flavors=[ResourceFlavor(name) for name in names] if flavors is None else flavors,
        queues=queues,
        cohorts=cohorts,
        local_queues=[LocalQueue(f"n/{each.name}", each.name) for each in queues],
        rooms=rooms,
    )


def waits(state: State, name: str, at: str, need: int = 1, *, now: float = 0.0, **more: Any) -> Workload:
    """Submit a workload of one pod."""
    podsets = more.pop("podsets", (PlacementRequest("main", 1, {"cpu": need}),))
    workload = Workload(f"n/{name}", queue=f"n/{at}", podsets=podsets, uid=name, **more)
    state.submit(workload, now=now)
    return workload


def runs(
    state: State, name: str, at: str, used: int = 1, *, flavor: str = "f", since: float = 0.0, **more: Any
) -> Workload:
    """Submit a workload that holds quota since a time."""
    workload = Workload(
        f"n/{name}", queue=f"n/{at}", podsets=(PlacementRequest("main", 1, {"cpu": used}),), uid=name, **more
    )
    workload.admission = Admission(at, (PodSetAdmission("main", 1, {"cpu": flavor}, {"cpu": used}),))
    workload.conditions["QuotaReserved"] = WorkloadCondition(status=True, at=since)
    state.submit(workload, now=since)
    return workload


def once(state: State, now: float = 1.0) -> CycleOutcome:
    """Run one cycle, and apply it."""
    outcome = cycle(state, now=now)
    apply(state, outcome, now=now)
    return outcome


def settle(state: State, *, now: float = 1.0, cycles: int = 60) -> bool:
    """Run cycles, and let victims end at once, until nothing happens any more; return whether that came."""
    for _ in range(cycles):
        now += 1
        outcome = once(state, now)
        victims = [each for each in state.workloads.values() if each.holds_quota and each.has("Evicted")]
        for victim in victims:
            gone(state, victim, now=now)
        if not outcome.progress and not victims and not _may_go_on(state, outcome):
            return True
    return False


def _may_go_on(state: State, outcome: CycleOutcome) -> bool:
    """Whether a head was parked, so that there is another one, or quota that was booked for it is free for others."""
    waiting, lines = {each.workload for each in outcome.waiting}, state.lines.values()
    return any(line.active for line in lines) and any(waiting & line.parked.keys() for line in lines)


def admitted(outcome: CycleOutcome) -> list[str]:
    return [each.workload.removeprefix("n/") for each in outcome.admitted]


def preempted(outcome: CycleOutcome) -> dict[str, str]:
    return {each.workload.removeprefix("n/"): each.reason for each in outcome.preempted}


def reasons(outcome: CycleOutcome) -> dict[str, str]:
    return {each.workload.removeprefix("n/"): each.reason for each in outcome.waiting}


ANY = Preemption("LowerPriority", "Any")
