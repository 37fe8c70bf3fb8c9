"""Nodes from files: a lab's topology in YAML, `aws ec2 describe-instance-topology`, `kubectl get nodes -o json`.

The content determines the format: JSON (or the same in YAML) with `Instances`, with `items`, or of one node by itself;
or else the YAML of a topology. Several documents, one after the other or in a list, are one list, as pages of EC2's
answer are. A field that is null is as good as absent. EC2 does not report capacity:
it is one rank for each instance unless `ranks_per_host` is given. For Kubernetes `ranks_per_host` is an upper bound on
the reported capacity. Kubernetes always reports capacity and readiness; a list made by hand may omit them, and then a
node is ready and has room for one rank.

Nodes of one rack have most label values and often all capacities in common. Equal values are stored once, which makes
assignments on many nodes faster.

Every mistake is one line with file, position and value: NodesError, or an error of reading a topology.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from sys import intern
from typing import Annotated, Final

from pydantic import Field

from netns.base.naming import named
from netns.base.yaml_file import Lenient, mapping_of, validated
from netns.errors import NodesError
from netns.inventory.fabric_layers import nodes_of
from netns.inventory.nodes import (
    HOSTNAME_LABEL,
    MAX_LAYERS,
    PODS,
    ULTRASERVER_LABEL,
    ZONE_LABEL,
    Effect,
    Node,
    Taint,
    layer_label,
)
from netns.inventory.quantity import Quantities
from netns.topology.file import read_topology
from netns.topology.model import Topology

MAX_FILE_BYTES: Final = 512 << 20
"""Ten thousand nodes of Kubernetes are some 200 MB."""

PRINTABLE: Final = r"^[^\x00-\x1f\x7f-\x9f]*$"
"""Names are printed on terminals, which interpret other characters as control sequences."""

KUBELET_PODS: Final = 110
"""The kubelet's default of maxPods."""

WANTED: Final = "neither Instances (aws ec2 describe-instance-topology) nor items (kubectl get nodes -o json)"


_YAML: Final = re.compile(rb"^(apiVersion|items|kind|Instances):", re.MULTILINE)
"""Top-level keys of what `kubectl -o yaml` and `aws --output yaml` print; no topology has them."""
_BLANK: Final = re.compile(r"[ \t\r\n]*")

MAX_VALUES: Final = 32 << 20
"""Ten thousand nodes of Kubernetes have some ten million; a file of brackets alone takes 60 bytes for each."""

Name = Annotated[str, Field(min_length=1, pattern=PRINTABLE)]
Label = Annotated[str, Field(pattern=PRINTABLE)]


class _Instance(Lenient):
    InstanceId: Name
    InstanceType: Label | None = None
    NetworkNodes: list[Label] | None = Field(default=None, max_length=MAX_LAYERS)
    AvailabilityZone: Label | None = None
    ZoneId: Label | None = None
    CapacityBlockId: Label | None = None


class _Ec2(Lenient):
    Instances: list[_Instance]


class _Metadata(Lenient):
    name: Name
    labels: dict[Label, Label] = Field(default={})


class _Taint(Lenient):
    key: str
    value: str = ""
    effect: Effect


class _Spec(Lenient):
    taints: list[_Taint] = Field(default=[])
    unschedulable: bool = False


class _Condition(Lenient):
    type: str
    status: str


class _Status(Lenient):
    allocatable: Quantities = Field(default={})
    conditions: list[_Condition] = Field(default=[])


class _Item(Lenient):
    kind: str = "Node"
    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _NodeList(Lenient):
    items: list[_Item]


def read_nodes(
    path: Path, *, ranks_per_host: int | None = None, on_warning: Callable[[str], None] = lambda _: None
) -> tuple[Node, ...]:
    """Return the nodes in a file, in its order. Raises NodesError, TopologyError or ShapeError, one line each.

    `on_warning` is called with warnings: a list of which this is only the first page.
    """
    if (topology := topology_in(path)) is not None:
        return nodes_of(topology, ranks_per_host=ranks_per_host or 1)
    with named(f"{path}: ", NodesError):
        document = load_document(path)
        nodes = nodes_untrusted(document, ranks_per_host=ranks_per_host)
        _check_names(nodes)
    last = document[-1] if isinstance(document, list) else document
    if isinstance(last, dict) and last.get("NextToken"):
        on_warning(
            f"{path}: NextToken: the list goes on beyond these nodes; join all pages (aws does without --no-paginate)"
        )
    return nodes


def topology_in(path: Path) -> Topology | None:
    """Return the topology in a file; None if it lists nodes. Raises TopologyError or ShapeError."""
    return None if _is_document(path) else read_topology(path)


def nodes_untrusted(document: object, *, ranks_per_host: int | None = None) -> tuple[Node, ...]:
    """Return the nodes in a document of EC2 or Kubernetes; NodesError, with position and value, if it is neither."""
    if (found := listed(document, key="Instances", one="InstanceId")) is not None:
        return _ec2(found, ranks_per_host)
    if (found := listed(document, key="items", one="metadata")) is not None:
        return _kubernetes(found, ranks_per_host)
    raise NodesError(f"holds {WANTED}")


def listed(document: object, *, key: str, one: str) -> dict[str, object] | None:
    """Return a document that lists objects under `key`: this one, what several list, or one object, which has `one`.

    Return None for all else.
    """
    if isinstance(document, dict):
        return document if key in document else {key: [document]} if one in document else None
    if not isinstance(document, list) or not document or any(isinstance(each, list) for each in document):
        return None
    lists = [(listed(each, key=key, one=one) or {}).get(key) for each in document]
    found = [each for each in lists if isinstance(each, list)]
    return {key: list(chain.from_iterable(found))} if len(found) == len(lists) else None


def _is_document(path: Path) -> bool:
    """Return whether a file begins like a document of EC2 or Kubernetes; errors of reading are left to the reader."""
    if path.suffix == ".json":
        return True
    try:
        with path.open("rb") as file:
            begin = file.read(1024).lstrip()
    except OSError:
        return False
    return begin[:1] in (b"{", b"[") or _YAML.search(begin) is not None


def load_document(path: Path) -> object:
    """Return the JSON in a file, or the same in YAML, with limits; several documents as a list. Raises NodesError."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise NodesError(error.strerror or str(error)) from None
    if len(content) > MAX_FILE_BYTES:
        raise NodesError(f"larger than {MAX_FILE_BYTES >> 20} MiB; this is no list of nodes")
    values = sum(content.count(sign) for sign in (b",", b"[", b"{"))
    if values > MAX_VALUES:
        raise NodesError(f"{values} values; at most {MAX_VALUES}: this is no list of nodes")
    if _YAML.search(content[:1024]):
        try:
            return mapping_of(content, error=NodesError, wanted=f"holds {WANTED}")
        except NodesError as error:
            raise NodesError(f"{error}; or give JSON: kubectl get ... -o json, aws ... --output json") from None
    try:
        documents = list(_documents(content.decode()))
        return documents[0] if len(documents) == 1 else documents
    except json.JSONDecodeError as error:
        raise NodesError(f"line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from None
    except (UnicodeDecodeError, RecursionError, ValueError) as error:
        raise NodesError(f"not JSON: {str(error).splitlines()[0]}") from None


def _documents(text: str) -> Iterator[object]:
    """Yield JSON documents that stand one after the other. Raises ValueError."""
    decoder, at = json.JSONDecoder(), _BLANK.match(text).end()  # type: ignore[union-attr]  # it matches nothing, too
    while True:
        document, end = decoder.raw_decode(text, at)
        yield document
        at = _BLANK.match(text, end).end()  # type: ignore[union-attr]
        if at == len(text):
            return


def _ec2(document: object, ranks_per_host: int | None) -> tuple[Node, ...]:
    found = validated(_Ec2, document, error=NodesError)
    room = {PODS: ranks_per_host or 1}
    nodes = []
    for instance in found.Instances:
        layers = enumerate(map(intern, instance.NetworkNodes or ()), 1)
        labels = {layer_label(layer): value for layer, value in layers}
        labels[HOSTNAME_LABEL] = instance.InstanceId
        if instance.ZoneId:
            labels[ZONE_LABEL] = instance.ZoneId
        if instance.CapacityBlockId not in (None, "", "null"):  # EC2 writes the text "null" for none
            labels[ULTRASERVER_LABEL] = str(instance.CapacityBlockId)
        nodes.append(
            Node(
                instance.InstanceId,
                labels=labels,
                allocatable=room,
                instance_type=instance.InstanceType or "",
                zone=instance.AvailabilityZone or "",
                zone_id=instance.ZoneId or "",
            )
        )
    return tuple(nodes)


def _kubernetes(document: object, ranks_per_host: int | None) -> tuple[Node, ...]:
    found = validated(_NodeList, document, error=NodesError)
    rooms: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}
    nodes = []
    for item in found.items:
        if item.kind != "Node":  # of `kubectl get nodes,pods`
            continue
        room = dict(item.status.allocatable) or {PODS: ranks_per_host or 1}
        room.setdefault(PODS, KUBELET_PODS)
        if ranks_per_host is not None:
            room[PODS] = min(ranks_per_host, room[PODS])
        room = rooms.setdefault(tuple(room.items()), room)
        labels = {key: intern(value) for key, value in item.metadata.labels.items()}
        nodes.append(
            Node(
                item.metadata.name,
                labels=labels,
                allocatable=room,
                taints=tuple(Taint(taint.key, taint.value, taint.effect) for taint in item.spec.taints),
                ready=_ready(item.status.conditions),
                unschedulable=item.spec.unschedulable,
                instance_type=labels.get("node.kubernetes.io/instance-type", ""),
                zone=labels.get("topology.kubernetes.io/zone", ""),
                zone_id=labels.get(ZONE_LABEL, ""),
            )
        )
    return tuple(nodes)


def _ready(conditions: Iterable[_Condition]) -> bool:
    states = {each.type: each.status for each in conditions}
    return states.get("Ready") == "True" if states else True


def _check_names(nodes: Iterable[Node]) -> None:
    """Raise NodesError if two nodes have the same name or hostname, because they would be treated as one."""
    names: set[str] = set()
    hosts: set[str] = set()
    for node in nodes:
        host = node.labels.get(HOSTNAME_LABEL, node.name)
        if node.name in names or host in hosts:
            raise NodesError(f"node {node.name}: its name or hostname stands twice; every node needs its own")
        names.add(node.name)
        hosts.add(host)
