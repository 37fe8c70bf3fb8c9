"""The pods that run in a cluster, from `kubectl get pods --all-namespaces -o json`, as usage of nodes.

A pod takes one slot and its effective requests (Kubernetes, "Resource sharing within containers"): the sum of its
containers and sidecars (init containers that are restarted always), or the largest init container beside the sidecars
started before it if that is more; and its overhead. Requests of the pod as a whole replace those of its containers.
Pods that have ended, or have no node yet, take nothing.

Every mistake is one line with file, position and value: NodesError.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from pydantic import Field

from netns.base.naming import named
from netns.base.yaml_file import Lenient, validated
from netns.errors import NodesError
from netns.inventory.node_files import Label, listed, load_document
from netns.inventory.quantity import Quantities
from netns.placement.model import Usage

ENDED = ("Succeeded", "Failed")
WANTED = "no items (kubectl get pods --all-namespaces -o json)"


class _Resources(Lenient):
    requests: Quantities = Field(default={})


class _Container(Lenient):
    resources: _Resources = _Resources()
    restart_policy: str = Field(default="", alias="restartPolicy")


class _Spec(Lenient):
    node_name: Label = Field(default="", alias="nodeName")
    containers: list[_Container] = Field(default=[])
    init_containers: list[_Container] = Field(default=[], alias="initContainers")
    overhead: Quantities = Field(default={})
    resources: _Resources = _Resources()


class _Status(Lenient):
    phase: str = ""


class _Item(Lenient):
    kind: str = "Pod"
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _PodList(Lenient):
    items: list[_Item]


def read_pods(path: Path) -> tuple[Usage, ...]:
    """Return the usage of the pods in a file; items of other kinds are skipped. Raises NodesError."""
    with named(f"{path}: ", NodesError):
        return pods_untrusted(load_document(path))


def pods_untrusted(document: object) -> tuple[Usage, ...]:
    """Return the usage of the pods in a document of Kubernetes; equal pods of a node are counted together."""
    if (found := listed(document, key="items", one="metadata")) is None:
        raise NodesError(f"holds {WANTED}")
    pods: Counter[tuple[str, tuple[tuple[str, int], ...]]] = Counter()
    for item in validated(_PodList, found, error=NodesError).items:
        if item.kind == "Pod" and item.spec.node_name and item.status.phase not in ENDED:
            pods[item.spec.node_name, tuple(sorted(_requests(item.spec).items()))] += 1
    return tuple(Usage(dict(requests), count=count, node=node) for (node, requests), count in pods.items())


def _requests(spec: _Spec) -> dict[str, int]:
    """Return the effective requests of a pod."""
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for container in spec.init_containers:
        requests = Counter(container.resources.requests)
        if container.restart_policy == "Always":
            running += requests
        else:
            most |= running + requests
    for container in spec.containers:
        running += Counter(container.resources.requests)
    total = (running | most) + Counter(spec.overhead)
    return {**total, **{name: amount + spec.overhead.get(name, 0) for name, amount in spec.resources.requests.items()}}
