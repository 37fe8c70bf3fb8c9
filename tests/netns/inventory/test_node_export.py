"""netns.inventory.node_export: both shapes, read back as the same nodes."""

from __future__ import annotations

import json
from dataclasses import replace

from netns.inventory.fabric_layers import nodes_of
from netns.inventory.node_export import quantities, to_ec2, to_kubernetes
from netns.inventory.node_files import nodes_untrusted
from netns.inventory.nodes import PODS, ULTRASERVER_LABEL, Node, Taint, layer_label
from netns.topology.model import leaf_spine

NODES = nodes_of(leaf_spine(name="demo", leaves=2, hosts_per_leaf=2))


def test_ec2__round_trip() -> None:
    document = json.loads(json.dumps(to_ec2(NODES)))
    assert document["Instances"][0] == {
        "InstanceId": "h1",
        "InstanceType": "srd-lab",
        "NetworkNodes": ["demo", "spine1-spine4", "leaf1"],
        "AvailabilityZone": "demo",
    }
    assert nodes_untrusted(document) == NODES


def test_ec2__ultraserver_is_the_capacity_block() -> None:
    node = replace(
        NODES[0], labels={**NODES[0].labels, ULTRASERVER_LABEL: "cb-1", layer_label(4): "nn-4"}, zone_id="z1"
    )
    document = to_ec2([node])
    assert document["Instances"][0]["CapacityBlockId"] == "cb-1"
    assert document["Instances"][0]["NetworkNodes"][-1] == "nn-4"
    assert document["Instances"][0]["ZoneId"] == "z1"


def test_kubernetes__round_trip() -> None:
    nodes = (
        replace(NODES[0], taints=(Taint("gpu", "x", "NoExecute"),), unschedulable=True),
        replace(NODES[1], ready=False, allocatable={"cpu": 1500, "memory": 2**30, PODS: 3}),
    )
    again = nodes_untrusted(json.loads(json.dumps(to_kubernetes(nodes))))
    for node, other in zip(nodes, again, strict=True):
        assert node.labels.items() <= other.labels.items()
        assert replace(other, labels=node.labels) == node


def test_kubernetes__node_with_few_fields() -> None:
    document = to_kubernetes([Node("n")])
    assert document["items"][0]["metadata"] == {"name": "n", "labels": {}}
    assert document["items"][0]["spec"] == {}


def test_quantities() -> None:
    assert quantities({"cpu": 1500, "memory": 5}) == {"cpu": "1500m", "memory": "5"}
    assert quantities({"cpu": 2000}) == {"cpu": "2"}
