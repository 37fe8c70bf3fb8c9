"""Kueue's YAML and HyperPod's JSON: what they mean, and the one line for each mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from netns.errors import GovernanceError
from netns.governance.hyperpod_file import EFA, GPU
from netns.governance.kueue_file import cluster_of, read_cluster
from netns.governance.model import Fungibility, Preemption, Quota

QUEUE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team-a, uid: whatever}
spec:
  cohortName: all
  queueingStrategy: StrictFIFO
  namespaceSelector: {matchLabels: {team: a}}
  resourceGroups:
  - coveredResources: [cpu, nvidia.com/gpu]
    flavors:
    - name: on-demand
      resources:
      - {name: cpu, nominalQuota: 10, borrowingLimit: 500m, lendingLimit: 4}
      - {name: nvidia.com/gpu, nominalQuota: "8"}
  preemption:
    withinClusterQueue: LowerPriority
    reclaimWithinCohort: Any
    borrowWithinCohort: {policy: LowerPriority, maxPriorityThreshold: 100}
  flavorFungibility: {whenCanBorrow: TryNextFlavor, whenCanPreempt: TryNextFlavor, preference: PreemptionOverBorrowing}
  fairSharing: {weight: "0.5"}
status: {anything: 1}
"""
OTHERS = """
# a comment
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: Cohort, metadata: {name: all}, spec: {parentName: root}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: lq, namespace: a}, spec: {clusterQueue: team-a}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: WorkloadPriorityClass, metadata: {name: high}, value: 1000}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: on-demand}
spec: {nodeLabels: {type: od}, nodeTaints: [{key: spot, effect: NoSchedule}], topologyName: racks}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: Topology, metadata: {name: racks}, spec: {levels: [{nodeLabel: rack}]}}
---
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
fairSharing: {preemptionStrategies: [LessThanInitialShare]}
featureGates: {PrioritizePreemptorWorkloads: false, PriorityBoost: true, SomethingElse: true}
waitForPodsReady: {timeout: 1h30m, blockAdmission: true, requeuingStrategy: {timestamp: Creation, backoffLimitCount: 3}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: a}}
"""


def test_a_cluster_of_kueue(tmp_path: Path) -> None:
    (tmp_path / "queue.yaml").write_text(QUEUE)
    (tmp_path / "others.yaml").write_text(OTHERS)
    found = read_cluster([tmp_path / "queue.yaml", tmp_path / "others.yaml"])
    (queue,) = found.queues
    assert (queue.name, queue.cohort, queue.strategy, queue.weight) == ("team-a", "all", "StrictFIFO", 0.5)
    assert queue.groups[0].flavors == (("on-demand", {"cpu": Quota(10_000, 500, 4_000), "nvidia.com/gpu": Quota(8)}),)
    assert queue.preemption == Preemption("LowerPriority", "Any", while_borrowing=True, threshold=100)
    assert queue.fungibility == Fungibility("TryNextFlavor", "TryNextFlavor", "PreemptionOverBorrowing")
    assert [(each.name, each.parent) for each in found.cohorts] == [("all", "root")]
    assert [(each.key, each.cluster_queue) for each in found.local_queues] == [("a/lq", "team-a")]
    assert found.priorities == {"high": 1000}
    assert found.topologies == {"racks": ("rack",)}
    assert str(found.flavors[0].taints[0]) == "spot:NoSchedule"
    assert found.settings.fair_sharing == ("LessThanInitialShare",)
    assert (found.settings.preemptors_first, found.settings.priority_boost) == (False, True)
    assert found.settings.block_admission
    assert found.state().inactive(queue) is None


def test_v1beta1_means_the_same() -> None:
    old = QUEUE.replace("v1beta2", "v1beta1").replace("cohortName", "cohort")
    assert cluster_of(old.encode()).queues == cluster_of(QUEUE.encode()).queues
    borrow = QUEUE.replace(
        "whenCanBorrow: TryNextFlavor, whenCanPreempt: TryNextFlavor, preference: PreemptionOverBorrowing",
        "whenCanBorrow: Borrow, whenCanPreempt: Preempt",
    )
    assert cluster_of(borrow.encode()).queues[0].fungibility == Fungibility("MayStopSearch", "MayStopSearch")


def test_no_namespace_selector_matches_nothing() -> None:
    absent = QUEUE.replace("  namespaceSelector: {matchLabels: {team: a}}\n", "")
    assert cluster_of(absent.encode()).queues[0].namespace_selector is None
    every = QUEUE.replace("{matchLabels: {team: a}}", "{}")
    assert cluster_of(every.encode()).queues[0].namespace_selector == ()


@pytest.mark.parametrize(
    ("right", "wrong", "line"),
    [
        ("nominalQuota: 10", "nominalQuota: ten", "flavors.on-demand.cpu: cpu: 'ten' is no quantity"),
        ("lendingLimit: 4", "lendingLimit: 40", "flavors.on-demand.cpu: lendingLimit: more than nominalQuota"),
        ("  cohortName: all\n", "", "flavors.on-demand.cpu: borrowingLimit and lendingLimit need a cohort"),
        ("StrictFIFO", "strict", "spec.queueingStrategy: 'strict' should be 'BestEffortFIFO' or 'StrictFIFO'"),
        ("queueingStrategy", "queueStrategy", "spec.queueStrategy: no such key; the known ones here are cohort,"),
        ("[cpu, nvidia.com/gpu]", "[nvidia.com/gpu, cpu]", "resourceGroups[0]: flavors[0].resources: not those of"),
        ("reclaimWithinCohort: Any", "reclaimWithinCohort: Never", "spec.preemption: borrowWithinCohort: needs"),
        ("whenCanBorrow: TryNextFlavor", "whenCanBorrow: MayStopSearch", "preference: needs both fields TryNextFlavor"),
        ('"0.5"', "-1", "fairSharing.weight: -1 is no weight"),
        ("name: team-a, ", "", "metadata.name: missing"),
    ],
)
def test_a_mistake_is_one_line(right: str, wrong: str, line: str) -> None:
    assert right in QUEUE
    with pytest.raises(GovernanceError) as caught:
        cluster_of(QUEUE.replace(right, wrong, 1).encode())
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_refers_to_nothing(tmp_path: Path) -> None:
    file = tmp_path / "queue.yaml"
    file.write_text(QUEUE)
    with pytest.raises(GovernanceError, match=r"ClusterQueue team-a: .*there is no ResourceFlavor on-demand"):
        read_cluster([file])
    file.write_text(f"{QUEUE}---{QUEUE}")
    with pytest.raises(GovernanceError, match="ClusterQueue team-a: is given twice"):
        read_cluster([file])
    file.write_text("{apiVersion: kueue.x-k8s.io/v1beta2, kind: Cohort, metadata: {name: x}}")
    with pytest.raises(GovernanceError, match="no ClusterQueue in these files"):
        read_cluster([file])
    with pytest.raises(GovernanceError, match="No such file"):
        read_cluster([tmp_path / "missing.yaml"])


SCHEDULER = {
    "Name": "policy",
    "ClusterArn": "arn:aws:sagemaker:R:123456789012:cluster/abcdef012345",
    "SchedulerConfig": {
        "FairShare": "Enabled",
        "PriorityClasses": [{"Name": "inference", "Weight": 90}, {"Name": "training", "Weight": 70}],
    },
    "Description": "",
}


def _team(name: str, *, count: int, sharing: object = None, **more: object) -> dict[str, object]:
    config = {"ComputeQuotaResources": [{"InstanceType": "ml.p5.48xlarge", "Count": count}], **more}
    if sharing is not None:
        config["ResourceSharingConfig"] = sharing
    target = {"TeamName": name, "FairShareWeight": 10}
    return {"Name": name, "ActivationState": "Enabled", "ComputeQuotaTarget": target, "ComputeQuotaConfig": config}


def _read(*documents: object) -> bytes:
    return "\n---\n".join(json.dumps(each) for each in documents).encode()


@pytest.mark.parametrize(
    ("sharing", "quota"),
    [
        (None, Quota(16, 8)),
        ({"Strategy": "LendAndBorrow", "BorrowLimit": 100}, Quota(16, 16)),
        ({"Strategy": "Lend"}, Quota(16, 0)),
        ({"Strategy": "DontLend"}, Quota(16, 0, 0)),
        (
            {"AbsoluteBorrowLimits": [{"InstanceType": "ml.p5.48xlarge", "Accelerators": 1}]},
            Quota(16, 1),
        ),
    ],
)
def test_a_team_of_hyperpod(sharing: object, quota: Quota) -> None:
    found = cluster_of(_read(SCHEDULER, _team("a", count=2, sharing=sharing), _team("b", count=1)))
    queue = found.queues[0]
    assert queue.name == "hyperpod-ns-a-clusterqueue"
    assert queue.groups[0].flavors[0][0] == "ml.p5.48xlarge"
    assert queue.groups[0].flavors[0][1][GPU] == quota
    assert queue.groups[0].flavors[0][1][EFA].nominal == 64
    assert queue.weight == 10.0
    assert queue.cohort == found.queues[1].cohort
    assert found.local_queues[0].key == "hyperpod-ns-a/hyperpod-ns-a-localqueue"
    assert found.priorities == {"inference-priority": 90, "training-priority": 70}
    assert found.settings.fair_sharing is not None


def test_mistakes_in_hyperpods() -> None:
    with pytest.raises(GovernanceError, match=r"SchedulerConfig.PriorityClasses\[0\].Weight: 101 should be less"):
        cluster_of(_read({"SchedulerConfig": {"PriorityClasses": [{"Name": "a", "Weight": 101}]}}))
    unknown = _team("a", count=1)
    unknown["ComputeQuotaConfig"] = {"ComputeQuotaResources": [{"InstanceType": "ml.new.1xlarge", "Count": 1}]}
    with pytest.raises(GovernanceError, match=r"ml.new.1xlarge: its size is not known here; give Accelerators"):
        cluster_of(_read(SCHEDULER, unknown))
