"""Objects from plain data, as JSON has them: the form of tests/data/governance_cases.json.

Amounts are integers, times seconds, missing fields have Kueue's defaults. Data is trusted; files of users are read by
kueue_file.py and hyperpod_file.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter

from netns.governance.model import (
    Admission,
    ClusterQueue,
    Cohort,
    Fungibility,
    LocalQueue,
    Preemption,
    Quantities,
    Workload,
    WorkloadCondition,
)
from netns.governance.settings import BOTH_STRATEGIES, GATES, Settings, UsageSharing
from netns.governance.state import State, boost_of
from netns.placement.model import PlacementRequest, ResourceFlavor

T = TypeVar("T")
Data = Mapping[str, Any]


def settings_of(data: Data) -> Settings:
    """Return the settings of a question: its gates, fair sharing, timestamps."""
    fields: dict[str, Any] = {GATES[gate]: on for gate, on in (data.get("gates") or {}).items() if gate in GATES}
    fair = data.get("fair_sharing")
    if fair:
        strategies = fair.get("strategies") if isinstance(fair, Mapping) else None
        fields["fair_sharing"] = tuple(strategies or BOTH_STRATEGIES)
    if data.get("pods_ready_timestamp"):
        fields["requeue_by"] = data["pods_ready_timestamp"]
    if data.get("ignore_undeclared") or data.get("quota_check_strategy") == "IgnoreUndeclared":
        fields["ignore_undeclared"] = True
    setup = data.get("setup") or {}
    sharing = data.get("admission_fair_sharing")
    usage_on = (data.get("gates") or {}).get("AdmissionFairSharing") or "usage_half_life_s" in setup
    if sharing is not None or usage_on:
        fields["usage_sharing"] = UsageSharing(
            half_life_s=setup.get("usage_half_life_s", UsageSharing().half_life_s),
            sampling_s=setup.get("usage_sampling_s", UsageSharing().sampling_s),
            resource_weights=(sharing or {}).get("resource_weights") or {},
        )
    return Settings(**fields)


def state_of(setup: Data, settings: Settings, *, now: float = 0.0) -> State:
    """Return the state of a setup, with its workloads or its usage."""
    state = State(
        settings,
        flavors=[_made(ResourceFlavor, each) for each in setup.get("flavors") or ()],
        queues=[_queue(each) for each in setup.get("cluster_queues") or ()],
        cohorts=[_made(Cohort, each, groups=_groups(each), **_weight(each)) for each in setup.get("cohorts") or ()],
        local_queues=[
            _made(LocalQueue, {"cluster_queue": "", **each}, **_weight(each), **_stop(each))
            for each in setup.get("local_queues") or ()
        ],
        namespaces=setup.get("namespaces"),
    )
    for queue, usage in (setup.get("usage") or {}).items():
        if queue in state.nodes:
            state.nodes[queue].add_all(quantities_of(usage))
    for each in setup.get("workloads") or ():
        state.submit(workload_of(each), now=now)
    if state.ledger is not None:
        state.ledger.used = {key: dict(used) for key, used in (setup.get("local_queue_usage") or {}).items()}
    return state


def quantities_of(usage: Data) -> Quantities:
    """Return amounts by flavor, then resource, as one mapping."""
    return {(flavor, resource): amount for flavor, each in usage.items() for resource, amount in each.items()}


def nested(amounts: Quantities) -> dict[str, dict[str, int]]:
    """Return amounts by flavor, then resource."""
    found: dict[str, dict[str, int]] = {}
    for (flavor, resource), amount in amounts.items():
        found.setdefault(flavor, {})[resource] = amount
    return found


def _queue(data: Data) -> ClusterQueue:
    preemption = data.get("preemption") or {}
    borrow = preemption.get("borrow_within_cohort") or {}
    return _made(
        ClusterQueue,
        data,
        groups=_groups(data),
        preemption=Preemption(
            preemption.get("within_cluster_queue") or "Never",
            preemption.get("reclaim_within_cohort") or "Never",
            (borrow.get("policy") or "Never") != "Never",
            borrow.get("max_priority_threshold"),
        ),
        fungibility=fungibility_of(data.get("fungibility") or {}),
        by_usage=data.get("admission_mode") == "UsageBasedAdmissionFairSharing",
        checks=[each["name"] if isinstance(each, Mapping) else each for each in data.get("admission_checks") or ()],
        **_weight(data),
        **_stop(data),
    )


def fungibility_of(data: Data) -> Fungibility:
    """Return when the search for a flavor ends; Borrow and Preempt are v1beta1's names of MayStopSearch."""
    old = {"Borrow": "MayStopSearch", "Preempt": "MayStopSearch"}
    return _made(Fungibility, {name: old.get(value, value) for name, value in data.items()})


def workload_of(data: Data) -> Workload:
    """Return a workload."""
    namespace = data["key"].rpartition("/")[0]
    queue, requeue = data.get("queue"), data.get("requeue") or {}
    admission = data.get("admission")
    return Workload(
        data["key"],
        queue=f"{namespace}/{queue}" if queue is not None else "",
        podsets=tuple(podset_of(each) for each in data.get("podsets") or ()),
        priority=data.get("priority") or 0,
        created=data.get("created") or 0.0,
        uid=data.get("uid") or "",
        boost=boost_of(data.get("annotations") or {}),
        active=data.get("active") is not False,
        admission=None if admission is None else _made(Admission, admission),
        conditions={
            each["type"]: WorkloadCondition(
                each["status"] in ("True", True), each.get("reason") or "", each.get("at") or 0.0
            )
            for each in data.get("conditions") or ()
        },
        reclaimable=_reclaimable(data.get("reclaimable")),
        checks={each["name"]: each["state"] for each in data.get("admission_checks") or ()},
        requeue_at=requeue.get("at"),
        queue_usage=data.get("local_queue_usage"),
    )


def podset_of(data: Data) -> PlacementRequest:
    """Return a pod set."""
    required = data.get("required_affinity")
    affinity = None if required is None else {"required": [{"expressions": term} for term in required]}
    return _made(PlacementRequest, data, affinity=affinity)


def admission_data(admission: Admission) -> dict[str, Any]:
    """Return an admission as plain data."""
    return {
        "cluster_queue": admission.cluster_queue,
        "podsets": [
            {"name": each.name, "count": each.count, "flavors": dict(each.flavors), "usage": dict(each.usage)}
            for each in admission.podsets
        ],
    }


def _reclaimable(data: Any) -> Mapping[str, int]:
    if isinstance(data, Mapping):
        return data
    return {each["name"]: each["count"] for each in data or ()}


def _groups(data: Data) -> list[Data]:
    """Return resource groups whose flavors are pairs of name and quotas."""
    return [
        {**group, "flavors": [(flavor["name"], flavor["resources"]) for flavor in group["flavors"]]}
        for group in data.get("groups") or ()
    ]


def _weight(data: Data) -> Data:
    weight = data.get("fair_weight")
    return {} if weight is None else {"weight": weight}


def _stop(data: Data) -> Data:
    return {"stop": data.get("stop_policy") or "None"}


def _made(kind: Callable[..., T], data: Data, **more: object) -> T:
    """Return a dataclass with the fields that data has under their names; null and "" are as good as absent."""
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]  # a dataclass
    given = {name: value for name, value in data.items() if name in names and value not in (None, "")}
    made: T = _adapter(kind).validate_python(given | more)
    return made


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
