"""Facts from Kueue's own tests (tests/data/topology_placement_cases.json), in this project's types.

The file names its origin: kubernetes-sigs/kueue, pkg/cache/scheduler/tas_cache_test.go (Apache-2.0), restated as data:
nodes, running pods, the request, and the assignment or failure that Kueue returns. Fields that no present case has are
read, too, so that cases of the same form can be added.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from netns.inventory.nodes import HOSTNAME_LABEL, Node, Taint
from netns.placement.model import (
    Affinity,
    DomainAssignment,
    Expression,
    PlacementRequest,
    Profile,
    Replacement,
    Slice,
    Term,
    Toleration,
    TopologyAssignment,
    TopologyFlavor,
    Unplaceable,
    Usage,
)

FILE = Path(__file__).resolve().parents[1] / "data" / "topology_placement_cases.json"
DOCUMENT: Mapping[str, Any] = json.loads(FILE.read_text())
CASES: Sequence[Mapping[str, Any]] = DOCUMENT["cases"]

Json = Mapping[str, Any]


def gates(case: Json) -> dict[str, bool]:
    return {**DOCUMENT["default_gates"], **case["gates"]}


def profile(case: Json) -> Profile:
    on = gates(case)
    return Profile(
        mixed=on["TASProfileMixed"],
        balanced=on["TASBalancedPlacement"],
        affinity_preferred=on["TASRespectNodeAffinityPreferred"],
        multi_layer=on["TASMultiLayerTopology"],
        elastic=on["ElasticJobsViaWorkloadSlices"] and on["ElasticJobsViaWorkloadSlicesWithTAS"],
    )


def nodes(case: Json) -> list[Node]:
    return [
        Node(
            each["name"],
            labels=each["labels"],
            allocatable=each["allocatable"],
            taints=tuple(Taint(taint["key"], taint.get("value", ""), taint["effect"]) for taint in each["taints"]),
            ready=each["ready"],
            unschedulable=each["unschedulable"],
        )
        for each in case["nodes"]
    ]


def usage(case: Json) -> list[Usage]:
    """Pods that run on nodes; and those of other workloads, in domains.

    Where hostnames are the lowest level, flavors may overlap, and what all of them use takes the place of the flavor's
    own usage (TASHandleOverlappingFlavors); else its own counts.
    """
    pods = [
        Usage(each["requests"], node=each["node"])
        for each in case["non_tas_pods"]
        if each["phase"] not in ("Succeeded", "Failed")
    ]
    shared = gates(case)["TASHandleOverlappingFlavors"] and case["levels"][-1] == HOSTNAME_LABEL
    return pods + [_usage(each) for each in case["tas_usage" if shared else "own_flavor_usage"]]


def _usage(each: Json) -> Usage:
    values = each["values"] if "values" in each else each["domain"]
    return Usage(
        each["requests"],
        count=each.get("count", 1),
        domain=tuple(values) if isinstance(values, list) else tuple(values.split(",")),
    )


def requests(case: Json) -> list[PlacementRequest]:
    return [_request(each) for each in case["podsets"]]


def _request(each: Json) -> PlacementRequest:
    topology = each["topology"]
    return PlacementRequest(
        name=each["name"],
        count=each["count"],
        requests=each["requests"],
        mode=topology["mode"],
        level=topology["level"],
        slices=tuple(Slice(layer["level"], layer["size"]) for layer in topology["slices"]),
        node_selector=each["node_selector"],
        tolerations=tuple(Toleration(**toleration) for toleration in each["tolerations"]),
        affinity=None if each["node_affinity"] is None else _affinity(each["node_affinity"]),
        group=each["group"],
        previous=None if each["previous_assignment"] is None else assignment(each["previous_assignment"]),
    )


def _affinity(each: Json) -> Affinity:
    required = each.get("required")
    if isinstance(required, dict):
        required = required.get("nodeSelectorTerms", required.get("terms"))
    return Affinity(
        required=None if required is None else tuple(_term(term) for term in required),
        preferred=tuple(
            (term["weight"], _term(term.get("preference", term.get("term", term))))
            for term in each.get("preferred") or ()
        ),
    )


def _term(each: Json | Sequence[Json]) -> Term:
    if not isinstance(each, Mapping):
        return Term(tuple(_expression(one) for one in each))
    expressions = each.get("matchExpressions", each.get("match_expressions", each.get("expressions"))) or ()
    fields = each.get("matchFields", each.get("match_fields", each.get("fields"))) or ()
    return Term(tuple(map(_expression, expressions)), tuple(map(_expression, fields)))


def _expression(each: Json) -> Expression:
    return Expression(each["key"], each["operator"], tuple(each.get("values") or ()))


def replacement(case: Json) -> Replacement | None:
    """An unhealthy node, and the assignments of the workload's pods."""
    each = case["replace"]
    if each is None:
        return None
    unhealthy = next(each[key] for key in ("unhealthy_node", "unhealthy", "node", "failed_node") if key in each)
    if isinstance(unhealthy, list):
        unhealthy = unhealthy[0]
    found = next(each[key] for key in ("assignments", "existing", "assignment") if key in each)
    if "levels" in found:
        found = dict.fromkeys((podset["name"] for podset in case["podsets"]), found)
    alone = each.get("owned_by_pod", each.get("owner") == "Pod")
    return Replacement(
        unhealthy,
        {name: assignment(one) for name, one in found.items()},
        stays=bool(alone) and gates(case)["SkipReassignmentForPodOwnedWorkloads"],
    )


def assignment(each: Json) -> TopologyAssignment:
    return TopologyAssignment(
        tuple(each["levels"]),
        tuple(DomainAssignment(tuple(domain["values"]), domain["count"]) for domain in each["domains"]),
    )


def flavor(case: Json) -> TopologyFlavor:
    return TopologyFlavor(node_labels=case["flavor_node_labels"])


def facts(found: Unplaceable, expected: Json) -> dict[str, Any]:
    """The facts of a failure that a case contains."""
    known_facts: dict[str, Any] = {
        "kind": found.kind,
        "fit": found.fit,
        "wanted": found.wanted,
        "unit": found.unit,
        "total_nodes": found.total_nodes,
        "excluded": dict(found.excluded),
        "arg": found.argument,
        "slice_level": found.argument,
    }
    return {key: known_facts[key] for key in expected if key in known_facts}
