"""Objects from plain data, as JSON has them: the form of tests/data/governance_cases.json.

Amounts are integers, times seconds, missing fields have Kueue's defaults. Data is trusted; files of users are read by
kueue_file.py and hyperpod_file.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netns.governance.model import (
    Admission,
    ClusterQueue,
    Cohort,
    Fungibility,
    LocalQueue,
    PodSetAdmission,
    Preemption,
    Quantities,
    Quota,
    ResourceGroup,
    Workload,
    WorkloadCondition,
)
from netns.governance.settings import GATES, Settings, UsageSharing
from netns.governance.state import State, boost_of
from netns.inventory.nodes import Taint
from netns.placement.model import Affinity, Expression, PlacementRequest, ResourceFlavor, Term, Toleration

Data = Mapping[str, Any]


def settings_of(data: Data) -> Settings:
    """Return the settings of a question: its gates, fair sharing, timestamps."""
    fields: dict[str, Any] = {GATES[gate]: on for gate, on in (data.get("gates") or {}).items() if gate in GATES}
    fair = data.get("fair_sharing")
    if fair:
        strategies = fair.get("strategies") if isinstance(fair, Mapping) else None
        fields["fair_sharing"] = tuple(strategies or ("LessThanOrEqualToFinalShare", "LessThanInitialShare"))
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
        flavors=[flavor_of(each) for each in setup.get("flavors") or ()],
        queues=[queue_of(each) for each in setup.get("cluster_queues") or ()],
        cohorts=[cohort_of(each) for each in setup.get("cohorts") or ()],
        local_queues=[
            LocalQueue(each["key"], each.get("cluster_queue") or "", _weight(each), each.get("stop_policy") or "None")
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


def flavor_of(data: Data) -> ResourceFlavor:
    """Return a flavor."""
    return ResourceFlavor(
        data["name"],
        data.get("node_labels") or {},
        tuple(Taint(each["key"], each.get("value") or "", each["effect"]) for each in data.get("taints") or ()),
        _tolerations(data),
    )


def queue_of(data: Data) -> ClusterQueue:
    """Return a cluster queue."""
    preemption, fungibility = data.get("preemption") or {}, data.get("fungibility") or {}
    borrow = preemption.get("borrow_within_cohort") or {}
    return ClusterQueue(
        data["name"],
        data.get("cohort") or None,
        _groups(data),
        data.get("strategy") or "BestEffortFIFO",
        Preemption(
            preemption.get("within_cluster_queue") or "Never",
            preemption.get("reclaim_within_cohort") or "Never",
            (borrow.get("policy") or "Never") != "Never",
            borrow.get("max_priority_threshold"),
        ),
        fungibility_of(fungibility),
        _weight(data),
        tuple(_expression(each) for each in data.get("namespace_selector") or ()),
        data.get("admission_mode") == "UsageBasedAdmissionFairSharing",
        tuple(each["name"] if isinstance(each, Mapping) else each for each in data.get("admission_checks") or ()),
        data.get("stop_policy") or "None",
    )


def fungibility_of(data: Data) -> Fungibility:
    """Return when the search for a flavor ends; Borrow and Preempt are v1beta1's names of MayStopSearch."""

    def rule(name: str, default: str) -> str:
        value = data.get(name) or default
        return "MayStopSearch" if value in ("Borrow", "Preempt") else str(value)

    return Fungibility(
        rule("when_can_borrow", "MayStopSearch"),
        rule("when_can_preempt", "TryNextFlavor"),
        data.get("preference") or "BorrowingOverPreemption",
    )


def cohort_of(data: Data) -> Cohort:
    """Return a cohort."""
    return Cohort(data["name"], data.get("parent") or None, _groups(data), _weight(data))


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
        admission=None if admission is None else _admission(admission),
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
    terms = None if required is None else tuple(Term(tuple(_expression(each) for each in term)) for term in required)
    return PlacementRequest(
        data["name"],
        data["count"],
        data.get("requests") or {},
        node_selector=data.get("node_selector") or {},
        tolerations=_tolerations(data),
        affinity=None if terms is None else Affinity(required=terms),
        group=data.get("group"),
        min_count=data.get("min_count"),
        limits=data.get("limits") or {},
    )


def admission_data(admission: Admission) -> dict[str, Any]:
    """Return an admission as plain data."""
    return {
        "cluster_queue": admission.cluster_queue,
        "podsets": [
            {"name": each.name, "count": each.count, "flavors": dict(each.flavors), "usage": dict(each.usage)}
            for each in admission.podsets
        ],
    }


def _admission(data: Data) -> Admission:
    return Admission(
        data["cluster_queue"],
        tuple(
            PodSetAdmission(each["name"], each.get("count", 1), each.get("flavors") or {}, each.get("usage") or {})
            for each in data["podsets"]
        ),
    )


def _reclaimable(data: Any) -> Mapping[str, int]:
    if isinstance(data, Mapping):
        return data
    return {each["name"]: each["count"] for each in data or ()}


def _groups(data: Data) -> tuple[ResourceGroup, ...]:
    return tuple(
        ResourceGroup(
            tuple(group["resources"]),
            tuple(
                (
                    flavor["name"],
                    {
                        name: Quota(quota.get("nominal") or 0, quota.get("borrowing_limit"), quota.get("lending_limit"))
                        for name, quota in flavor["resources"].items()
                    },
                )
                for flavor in group["flavors"]
            ),
        )
        for group in data.get("groups") or ()
    )


def _weight(data: Data) -> float:
    weight = data.get("fair_weight")
    return 1.0 if weight is None else float(weight)


def _expression(data: Data) -> Expression:
    return Expression(data["key"], data["operator"], tuple(data.get("values") or ()))


def _tolerations(data: Data) -> tuple[Toleration, ...]:
    return tuple(
        Toleration(
            each.get("key") or "", each.get("operator") or "Equal", each.get("value") or "", each.get("effect") or ""
        )
        for each in data.get("tolerations") or ()
    )
