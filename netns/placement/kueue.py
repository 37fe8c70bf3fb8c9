"""A job as manifests for Kueue: Topology, ResourceFlavor, ClusterQueue, LocalQueue, and a Job or a PyTorchJob.

Field names are those of the published CRDs, kueue.x-k8s.io/v1beta2, kubeflow.org/v1 and batch/v1; annotations are those
of Kueue's topology-aware scheduling. Other requirements of Kueue are met:

- A ResourceFlavor with a topology names at least one node label: `kubernetes.io/os`, which all nodes have.
- A ClusterQueue covers every resource that the job requests; its quota is the capacity of all nodes or, if that is
  unknown, the job's own requests.
- The job is created suspended; Kueue starts it.
- The pods of a PyTorchJob are one master and the workers, two pod sets of one group, placed together. Slices would have
  to divide the workers alone, so a job with slices is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import yaml

from netns.errors import JobError
from netns.inventory.node_export import quantities
from netns.inventory.nodes import PODS, Node
from netns.placement.job import Job, JobNodeAffinity, JobTerm

Kind = Literal["job", "pytorchjob"]
Manifest = dict[str, Any]

API: Final = "kueue.x-k8s.io/v1beta2"
PREFIX: Final = "kueue.x-k8s.io/"
NAMESPACE: Final = "default"
NODE_LABELS: Final = {"kubernetes.io/os": "linux"}

_LETTER: Final = re.compile("[A-Za-z]")
_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""In any case. Of https://yaml.org/type/bool.html and null.html (1.1), YAML 1.2.2, section 10.3.2, and go-yaml's
resolve.go, which kubectl has."""


def manifests(job: Job, *, nodes: Sequence[Node], levels: Sequence[str], kind: Kind = "job") -> list[Manifest]:
    """Return the manifests for `kubectl apply` to run `job` on `nodes`, in order. JobError if that is impossible."""
    if not job.image:
        raise JobError(f"job {job.name}: image: missing; a cluster runs containers, so give it in the job's file")
    names = {"topology": f"{job.queue}-topology", "flavor": f"{job.queue}-flavor", "queue": f"{job.queue}-cluster"}
    resources = [*sorted({*job.resources, *(job.leader.resources if job.leader else ())}), PODS]
    quota = quantities({resource: _quota(resource, job, nodes) for resource in resources})
    flavor = {"name": names["flavor"], "resources": [{"name": each, "nominalQuota": quota[each]} for each in resources]}
    return [
        _object(API, "Topology", names["topology"], {"levels": [{"nodeLabel": level} for level in levels]}),
        _object(
            API,
            "ResourceFlavor",
            names["flavor"],
            {"nodeLabels": dict(NODE_LABELS), "topologyName": names["topology"]},
        ),
        _object(
            API,
            "ClusterQueue",
            names["queue"],
            {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": resources, "flavors": [flavor]}]},
        ),
        _object(API, "LocalQueue", job.queue, {"clusterQueue": names["queue"]}, namespace=NAMESPACE),
        _job(job) if kind == "job" else _pytorch_job(job),
    ]


def dump(documents: Iterable[Manifest]) -> str:
    """Format several manifests as one YAML stream, whose texts are texts to any reader of YAML."""
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, explicit_start=True)


class _Dumper(yaml.SafeDumper):
    """Puts texts in quotes that begin with no letter, or are a word of a version of YAML.

    What a text without quotes is differs between YAML 1.1 (PyYAML), YAML 1.2, and kubectl's reader: `1e-5` is a text, a
    number, a number. All numbers, dates, null's `~` and `<<` begin with no letter.
    """

    def represent_text(self, text: str) -> yaml.ScalarNode:
        bare = _LETTER.match(text) and text.lower() not in _WORDS
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=None if bare else "'")


_Dumper.add_representer(str, _Dumper.represent_text)


def topology_annotations(job: Job) -> dict[str, str]:
    """Return the annotations of the pod template that request a topology level."""
    found = {}
    if job.topology.required is not None:
        found["podset-required-topology"] = job.topology.required
    elif job.topology.preferred is not None:
        found["podset-preferred-topology"] = job.topology.preferred
    elif not job.slices:
        found["podset-unconstrained-topology"] = "true"
    if len(job.slices) == 1:
        found["podset-slice-required-topology"] = job.slices[0].layer
        found["podset-slice-size"] = str(job.slices[0].size)
    elif job.slices:
        found["podset-slice-required-topology-constraints"] = json.dumps(
            [{"topology": each.layer, "size": each.size} for each in job.slices]
        )
    return {PREFIX + name: value for name, value in found.items()}


def _taken(resource: str, job: Job) -> int:
    """Return what all ranks of the job take of a resource."""
    if resource == PODS:
        return job.ranks
    led = 0 if job.leader is None else job.leader.resources.get(resource, 0)
    return job.workers * job.resources.get(resource, 0) + led


def _quota(resource: str, job: Job, nodes: Sequence[Node]) -> int:
    taken = _taken(resource, job)
    return sum(node.allocatable.get(resource, 0) for node in nodes) or taken


def _object(api: str, kind: str, name: str, spec: Manifest, *, namespace: str | None = None) -> Manifest:
    metadata: Manifest = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}


def _queued(api: str, kind: str, job: Job, spec: Manifest) -> Manifest:
    found = _object(api, kind, job.name, spec, namespace=NAMESPACE)
    found["metadata"]["labels"] = {PREFIX + "queue-name": job.queue}
    return found


def _job(job: Job) -> Manifest:
    if job.leader is not None:
        raise JobError(f"job {job.name}: leader: the pods of a Job are all alike; use --kind pytorchjob")
    pod = _pod(job, container="rank", requested=job.resources) | {"restartPolicy": "Never"}
    spec = {
        "suspend": True,
        "parallelism": job.ranks,
        "completions": job.ranks,
        "completionMode": "Indexed",
        "template": {"metadata": {"annotations": topology_annotations(job)}, "spec": pod},
    }
    return _queued("batch/v1", "Job", job, spec)


def _pytorch_job(job: Job) -> Manifest:
    if job.slices:
        raise JobError(f"job {job.name}: slices: a PyTorchJob's master stands beside its workers; use a Job")
    notes = topology_annotations(job)
    if job.ranks > 1:
        notes[PREFIX + "podset-group-name"] = job.name
    replicas = {
        "Master": (1, job.resources if job.leader is None else job.leader.resources),
        "Worker": (job.ranks - 1, job.resources),
    }
    spec = {
        "runPolicy": {"suspend": True},
        "pytorchReplicaSpecs": {
            role: {
                "replicas": count,
                "restartPolicy": "OnFailure",
                "template": {
                    "metadata": {"annotations": notes},
                    "spec": _pod(job, container="pytorch", requested=requested),
                },
            }
            for role, (count, requested) in replicas.items()
            if count
        },
    }
    return _queued("kubeflow.org/v1", "PyTorchJob", job, json.loads(json.dumps(spec)))  # a copy avoids YAML anchors


def _pod(job: Job, *, container: str, requested: Mapping[str, int]) -> Manifest:
    amounts = quantities(requested)
    # Extended resources (a domain in their name) cannot be overcommitted: their limit must equal the request.
    limits = {name: amount for name, amount in amounts.items() if "/" in name}
    resources = {key: value for key, value in (("requests", amounts), ("limits", limits)) if value}
    environment = [{"name": name, "value": value} for name, value in job.env.items()]
    the_container: Manifest = {"name": container, "image": job.image, "command": list(job.command)}
    the_container |= {key: value for key, value in (("env", environment), ("resources", resources)) if value}
    pod: Manifest = {"containers": [the_container]}
    if job.node_selector:
        pod["nodeSelector"] = dict(job.node_selector)
    if job.node_affinity is not None:
        pod["affinity"] = {"nodeAffinity": _node_affinity(job.node_affinity)}
    if job.tolerations:
        pod["tolerations"] = [each.model_dump(exclude_defaults=True) for each in job.tolerations]
    return pod


def _node_affinity(affinity: JobNodeAffinity) -> Manifest:
    found: Manifest = {}
    if affinity.required:
        terms = [{"matchExpressions": _expressions(term)} for term in affinity.required]
        found["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    if affinity.preferred:
        found["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": term.weight, "preference": {"matchExpressions": _expressions(term)}}
            for term in affinity.preferred
        ]
    return found


def _expressions(term: JobTerm) -> list[Manifest]:
    return [each.model_dump(exclude_defaults=True, mode="json") for each in term.match_expressions]
