"""Export nodes in the formats of EC2 and Kubernetes, for tools that read those; `node_files` reads both back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from netns.inventory.nodes import MAX_LAYERS, ULTRASERVER_LABEL, Node, layer_label


def to_ec2(nodes: Iterable[Node]) -> dict[str, Any]:
    """Return nodes in the format of `aws ec2 describe-instance-topology`."""
    return {"Instances": [_instance(node) for node in nodes]}


def to_kubernetes(nodes: Iterable[Node]) -> dict[str, Any]:
    """Return nodes in the format of `kubectl get nodes -o json`, with the fields that schedulers use."""
    return {"apiVersion": "v1", "kind": "List", "items": [_item(node) for node in nodes]}


def quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    """Return amounts as Kubernetes writes them: cpu in cores or thousandths of one, all else in whole units."""
    return {name: _cores(amount) if name == "cpu" else str(amount) for name, amount in amounts.items()}


def _instance(node: Node) -> dict[str, Any]:
    layers = (node.labels.get(layer_label(layer)) for layer in range(1, MAX_LAYERS + 1))
    instance: dict[str, Any] = {
        "InstanceId": node.name,
        "InstanceType": node.instance_type,
        "NetworkNodes": [value for value in layers if value],
        "AvailabilityZone": node.zone,
        "ZoneId": node.zone_id,
    }
    if ULTRASERVER_LABEL in node.labels:
        instance["CapacityBlockId"] = node.labels[ULTRASERVER_LABEL]
    return {key: value for key, value in instance.items() if value}


def _item(node: Node) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if node.taints:
        spec["taints"] = [{"key": each.key, "value": each.value, "effect": each.effect} for each in node.taints]
    if node.unschedulable:
        spec["unschedulable"] = True
    labels = dict(node.labels)
    for key, value in (
        ("node.kubernetes.io/instance-type", node.instance_type),
        ("topology.kubernetes.io/zone", node.zone),
    ):
        if value:
            labels.setdefault(key, value)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": labels},
        "spec": spec,
        "status": {
            "allocatable": quantities(node.allocatable),
            "conditions": [{"type": "Ready", "status": "True" if node.ready else "False"}],
        },
    }


def _cores(millicores: int) -> str:
    return f"{millicores}m" if millicores % 1000 else str(millicores // 1000)
