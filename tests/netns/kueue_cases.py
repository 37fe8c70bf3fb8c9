"""Facts from Kueue's own tests (tests/data/topology_placement_cases.json), in this project's types.

The file names its origin: kubernetes-sigs/kueue, pkg/cache/scheduler/tas_cache_test.go (Apache-2.0), restated as data:
nodes, running pods, the request, and the assignment or failure that Kueue returns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from netns.inventory.nodes import Node, Taint
from netns.placement.model import (
    DomainAssignment,
    PlacementRequest,
    Profile,
    ResourceFlavor,
    Slice,
    Toleration,
    TopologyAssignment,
    Unplaceable,
    Usage,
)
from netns.placement.running_pods import ENDED

FILE = Path(__file__).resolve().parents[1] / "data" / "topology_placement_cases.json"
DOCUMENT: Mapping[str, Any] = json.loads(FILE.read_text())
CASES: Sequence[Mapping[str, Any]] = DOCUMENT["cases"]

Json = Mapping[str, Any]


def profile(case: Json) -> Profile:
    on = {**DOCUMENT["default_gates"], **case["gates"]}
    return Profile(
        mixed=on["TASProfileMixed"],
        balanced=on["TASBalancedPlacement"],
        affinity_preferred=on["TASRespectNodeAffinityPreferred"],
        multi_layer=on["TASMultiLayerTopology"],
    )


def nodes(case: Json) -> list[Node]:
    return [Node(**{**each, "taints": tuple(Taint(**taint) for taint in each["taints"])}) for each in case["nodes"]]


def usage(case: Json) -> list[Usage]:
    """Pods that run on nodes; no case has those of other workloads in domains."""
    assert not case["tas_usage"]
    assert not case["own_flavor_usage"]
    return [Usage(each["requests"], node=each["node"]) for each in case["non_tas_pods"] if each["phase"] not in ENDED]


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
        group=each["group"],
    )


def assignment(each: Json) -> TopologyAssignment:
    return TopologyAssignment(
        tuple(each["levels"]),
        tuple(DomainAssignment(tuple(domain["values"]), domain["count"]) for domain in each["domains"]),
    )


def flavor(case: Json) -> ResourceFlavor:
    return ResourceFlavor(node_labels=case["flavor_node_labels"])


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
