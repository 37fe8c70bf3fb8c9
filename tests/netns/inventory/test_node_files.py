"""netns.inventory.node_files: three sources of nodes, and one-line errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import netns.inventory.node_files
from netns.errors import NodesError
from netns.inventory.node_files import nodes_untrusted, read_nodes
from netns.inventory.nodes import HOSTNAME_LABEL, PODS, ULTRASERVER_LABEL, ZONE_LABEL, Taint, layer_label

INSTANCE = {
    "InstanceId": "i-1111111111example",
    "InstanceType": "p5.48xlarge",
    "GroupName": "ML-group",
    "NetworkNodes": ["nn-1111111111example", "nn-2222222222example", "nn-3333333333example"],
    "ZoneId": "usw2-az2",
    "AvailabilityZone": "us-west-2a",
    "CapacityBlockId": "null",
}
ITEM = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "labels": {layer_label(1): "nn-1", HOSTNAME_LABEL: "host1"}, "uid": "x"},
    "spec": {"providerID": "aws:///x", "taints": [{"key": "gpu", "effect": "NoSchedule"}], "unschedulable": True},
    "status": {
        "allocatable": {"cpu": "3920m", "memory": "1Gi", "pods": "110", "nvidia.com/gpu": "8"},
        "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
    },
}


def test_ec2__layers_zone_and_no_capacity_block_called_null() -> None:
    (node,) = nodes_untrusted({"Instances": [INSTANCE]})
    assert node.labels == {
        layer_label(1): "nn-1111111111example",
        layer_label(2): "nn-2222222222example",
        layer_label(3): "nn-3333333333example",
        HOSTNAME_LABEL: "i-1111111111example",
        ZONE_LABEL: "usw2-az2",
    }
    assert (node.name, node.instance_type, node.zone) == ("i-1111111111example", "p5.48xlarge", "us-west-2a")
    assert node.allocatable == {PODS: 1}


def test_ec2__four_layers_and_a_capacity_block() -> None:
    instance = INSTANCE | {"NetworkNodes": ["a", "b", "c", "d"], "CapacityBlockId": "cb-1"}
    (node,) = nodes_untrusted({"Instances": [instance]}, ranks_per_host=8)
    assert (node.labels[layer_label(4)], node.labels[ULTRASERVER_LABEL]) == ("d", "cb-1")
    assert node.allocatable == {PODS: 8}


def test_ec2__an_instance_without_network_nodes_has_no_layers() -> None:
    (node,) = nodes_untrusted({"Instances": [INSTANCE | {"NetworkNodes": None}]})
    assert layer_label(1) not in node.labels


def test_kubernetes__fields_that_schedulers_use() -> None:
    (node,) = nodes_untrusted({"kind": "List", "items": [ITEM]})
    assert node.allocatable == {"cpu": 3920, "memory": 2**30, PODS: 110, "nvidia.com/gpu": 8}
    assert node.taints == (Taint("gpu", "", "NoSchedule"),)
    assert (node.ready, node.unschedulable, node.labels[HOSTNAME_LABEL]) == (True, True, "host1")
    assert nodes_untrusted({"items": [ITEM]}, ranks_per_host=8)[0].allocatable[PODS] == 8
    assert nodes_untrusted({"items": [ITEM]}, ranks_per_host=200)[0].allocatable[PODS] == 110


def test_kubernetes__missing_fields() -> None:
    (node,) = nodes_untrusted({"items": [{"metadata": {"name": "n"}}]})
    assert (node.ready, node.allocatable, node.taints) == (True, {PODS: 1}, ())
    (node,) = nodes_untrusted({"items": [{"metadata": {"name": "n"}, "status": {"allocatable": {"gpu": "8"}}}]})
    assert node.allocatable == {"gpu": 8, PODS: 110}


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_kubernetes__a_node_that_is_not_ready(status: str) -> None:
    (node,) = nodes_untrusted(changed("status", "conditions", value=[{"type": "Ready", "status": status}]))
    assert not node.ready
    (node,) = nodes_untrusted(changed("status", "conditions", value=[{"type": "Other", "status": "True"}]))
    assert not node.ready


def test_read_nodes__warns_of_further_pages(tmp_path: Path) -> None:
    path, warnings = tmp_path / "nodes.json", list[str]()
    path.write_text(json.dumps({"Instances": [INSTANCE], "NextToken": "x"}))
    assert len(read_nodes(path, on_warning=warnings.append)) == 1
    assert warnings == [
        f"{path}: NextToken: the list goes on beyond these nodes; join all pages (aws does without --no-paginate)"
    ]


def changed(*place: str, value: Any) -> dict[str, Any]:
    """ITEM with one value changed."""
    item: dict[str, Any] = json.loads(json.dumps(ITEM))
    at = item
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    return {"items": [item]}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "holds neither Instances (aws ec2 describe-instance-topology) nor items (kubectl get nodes -o json)"),
        ([], "holds neither Instances"),
        (
            {"Instances": [INSTANCE | {"InstanceId": "i\x1b[31m"}]},
            "Instances[0].InstanceId: 'i\\x1b[31m' String should",
        ),
        ({"items": [{"metadata": {"name": "a\nb"}}]}, "items[0].metadata.name: 'a\\nb' String should match pattern"),
        ({"Instances": [{}]}, "Instances[0].InstanceId: missing"),
        (
            {"Instances": [INSTANCE | {"NetworkNodes": list("abcde")}]},
            "Instances[0].NetworkNodes: ['a', 'b', 'c', 'd', 'e']",
        ),
        ({"Instances": [INSTANCE, INSTANCE]}, "node i-1111111111example: its name or hostname stands twice"),
        ({"items": [{}]}, "items[0].metadata: missing"),
        (
            changed("status", "allocatable", "cpu", value="lots"),
            "items[0].status.allocatable: cpu: 'lots' is no quantity",
        ),
        (changed("spec", "taints", value=[{"key": "x", "effect": "Never"}]), "items[0].spec.taints[0].effect: 'Never'"),
    ],
)
def test_read_nodes__bad_flow(tmp_path: Path, document: object, message: str) -> None:
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps(document))
    with pytest.raises(NodesError) as caught:
        read_nodes(path)
    assert str(caught.value).startswith(f"{path}: {message}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"Instances": [', "line 1, column 16: not JSON: Expecting value"),
        (b"\xff", "not JSON: 'utf-8' codec can't decode"),
        (b"[" * 100_000, "not JSON: maximum recursion depth exceeded"),
    ],
)
def test_read_nodes__malformed_json_bad_flow(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "nodes.json"
    path.write_bytes(content)
    with pytest.raises(NodesError) as caught:
        read_nodes(path)
    assert str(caught.value).startswith(f"{path}: {message}")
    assert "\n" not in str(caught.value)


def test_read_nodes__more_values_than_are_read_bad_flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netns.inventory.node_files, "MAX_VALUES", 5)
    path = tmp_path / "nodes.json"
    path.write_text('{"Instances": [[], [], [], []]}')
    with pytest.raises(NodesError, match=r"nodes.json: 9 values; at most 5: this is no list of nodes$"):
        read_nodes(path)


# -- what is clear in another form ----------------------------------------------------------------------------------


def renamed(number: int) -> dict[str, Any]:
    return {**ITEM, "metadata": {"name": f"n{number}", "labels": {}}}


def instance(number: int) -> dict[str, Any]:
    return {**INSTANCE, "InstanceId": f"i-{number}"}


NODES_YAML = "apiVersion: v1\nitems:\n- kind: Node\n  metadata:\n    name: n1\n  spec:\n    taints: null\nkind: List\n"
PAGES = [{"Instances": [instance(1)], "NextToken": "x"}, {"Instances": [instance(2)]}]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (json.dumps(renamed(1)), ["n1"]),
        (json.dumps([renamed(1), renamed(2)]), ["n1", "n2"]),
        (json.dumps(renamed(1)) + "\n" + json.dumps(renamed(2)) + "\n", ["n1", "n2"]),
        (json.dumps([{"items": [renamed(1)]}, {"kind": "List", "items": [renamed(2)]}]), ["n1", "n2"]),
        ("".join(map(json.dumps, PAGES)), ["i-1", "i-2"]),
        (json.dumps(PAGES), ["i-1", "i-2"]),
        (json.dumps([instance(1)]), ["i-1"]),
        (NODES_YAML, ["n1"]),
        ('apiVersion: v1\nkind: Node\nmetadata:\n  name: n1\nstatus:\n  allocatable:\n    cpu: "8"\n', ["n1"]),
        ("Instances:\n- InstanceId: i-1\n  NetworkNodes:\n  - nn-1\n", ["i-1"]),
    ],
)
def test_read_nodes__pages_single_nodes_and_yaml(tmp_path: Path, text: str, names: list[str]) -> None:
    path, warnings = tmp_path / "nodes", list[str]()
    path.write_text(text)
    assert [node.name for node in read_nodes(path, on_warning=warnings.append)] == names
    assert warnings == [], "the last page has no NextToken"


@pytest.mark.parametrize("field", ["spec", "status"])
def test_kubernetes__null_is_as_good_as_absent(field: str) -> None:
    inner = {"taints": None, "unschedulable": None, "allocatable": None, "conditions": None}
    for value in (None, inner):
        (node,) = nodes_untrusted({"items": [{**ITEM, field: value}]})
        (absent,) = nodes_untrusted({"items": [{key: each for key, each in ITEM.items() if key != field}]})
        assert node == absent


def test_read_nodes__yaml_that_is_too_much_names_the_remedy_bad_flow(tmp_path: Path) -> None:
    path = tmp_path / "nodes.yaml"
    path.write_text("apiVersion: v1\nitems:\n" + "- kind: Node\n" * 400_000)
    with pytest.raises(NodesError, match=r"larger than 4 MiB.*; or give JSON: kubectl get \.\.\. -o json"):
        read_nodes(path)
