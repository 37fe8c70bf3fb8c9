"""Clusters from HyperPod's task governance: requests or descriptions of ClusterSchedulerConfig and ComputeQuota.

A team T is the namespace hyperpod-ns-T, with the local queue hyperpod-ns-T-localqueue of the cluster queue
hyperpod-ns-T-clusterqueue; all teams share one cohort; an instance type is a flavor. AWS publishes what these objects
mean, not what Kueue's look like: docs/governance.md says which parts of the mapping are inferred.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from pydantic import Field

from netns.base.yaml_file import Lenient, Strict, validated
from netns.errors import GovernanceError
from netns.governance.cluster import Cluster
from netns.governance.model import ClusterQueue, LocalQueue, Preemption, Quota, ResourceGroup
from netns.governance.settings import BOTH_STRATEGIES, Settings
from netns.placement.model import ResourceFlavor

COHORT: Final = "hyperpod-teams"
GPU: Final = "nvidia.com/gpu"
NEURON: Final = "aws.amazon.com/neurondevice"
EFA: Final = "vpc.amazonaws.com/efa"
GIB: Final = 1 << 30

INSTANCES: Final[Mapping[str, tuple[int, int, int, int]]] = {
    "ml.g5.8xlarge": (32, 128, 1, 1),
    "ml.g5.12xlarge": (48, 192, 4, 1),
    "ml.g5.24xlarge": (96, 384, 4, 1),
    "ml.g5.48xlarge": (192, 768, 8, 1),
    "ml.p4d.24xlarge": (96, 1152, 8, 4),
    "ml.p4de.24xlarge": (96, 1152, 8, 4),
    "ml.p5.48xlarge": (192, 2048, 8, 32),
    "ml.p5e.48xlarge": (192, 2048, 8, 32),
    "ml.p5en.48xlarge": (192, 2048, 8, 16),
    "ml.trn1.32xlarge": (128, 512, 16, 8),
    "ml.trn1n.32xlarge": (128, 512, 16, 16),
    "ml.trn2.48xlarge": (192, 2048, 16, 16),
}
"""vCPUs, GiB, accelerators, EFA interfaces, as EC2 lists them (aws.amazon.com/ec2/instance-types)."""


class _PriorityClass(Strict):
    Name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=40)
    Weight: int = Field(ge=0, le=100)


class _Scheduler(Strict):
    PriorityClasses: list[_PriorityClass] = Field(default=[], max_length=10)
    FairShare: Literal["Enabled", "Disabled"] = "Enabled"
    IdleResourceSharing: Literal["Enabled", "Disabled"] = "Disabled"


class _SchedulerConfig(Lenient):
    SchedulerConfig: _Scheduler


class _Partition(Strict):
    Type: str
    Count: int = Field(ge=0)


class _Resources(Strict):
    InstanceType: str
    Count: int | None = Field(default=None, ge=0)
    Accelerators: int | None = Field(default=None, ge=0)
    VCpu: float | None = Field(default=None, ge=0)
    MemoryInGiB: float | None = Field(default=None, ge=0)
    AcceleratorPartition: _Partition | None = None

    def amounts(self) -> dict[str, int]:
        """Return the resources by name; all those of so many instances, or the ones that are given."""
        known = INSTANCES.get(self.InstanceType)
        found: dict[str, int] = {}
        device = NEURON if self.InstanceType.startswith("ml.trn") else GPU
        if self.Count is not None:
            if known is None:
                raise GovernanceError(
                    f"InstanceType {self.InstanceType}: its size is not known here; give Accelerators, VCpu and "
                    "MemoryInGiB instead of Count"
                )
            sizes = (known[0] * 1000, known[1] * GIB, known[2], known[3])
            found = {name: size * self.Count for name, size in zip(("cpu", "memory", device, EFA), sizes, strict=True)}
        if self.Accelerators is not None:
            found[device] = self.Accelerators
        if self.VCpu is not None:
            found["cpu"] = round(self.VCpu * 1000)
        if self.MemoryInGiB is not None:
            found["memory"] = round(self.MemoryInGiB * GIB)
        if self.AcceleratorPartition is not None:
            found[f"nvidia.com/{self.AcceleratorPartition.Type}"] = self.AcceleratorPartition.Count
        return found


class _Sharing(Strict):
    Strategy: Literal["LendAndBorrow", "Lend", "DontLend"] = "LendAndBorrow"
    BorrowLimit: int = Field(default=50, ge=0, le=10000)
    AbsoluteBorrowLimits: list[_Resources] = Field(default=[], max_length=15)


class _QuotaConfig(Strict):
    ComputeQuotaResources: list[_Resources] = Field(default=[], max_length=15)
    PreemptTeamTasks: Literal["LowerPriority", "Never"] = "LowerPriority"
    ResourceSharingConfig: _Sharing = _Sharing()


class _Target(Strict):
    TeamName: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=40)
    FairShareWeight: int = Field(default=0, ge=0, le=100)


class _ComputeQuota(Lenient):
    Name: str = ""
    ActivationState: Literal["Enabled", "Disabled"] = "Enabled"
    ComputeQuotaTarget: _Target
    ComputeQuotaConfig: _QuotaConfig = _QuotaConfig()


def is_hyperpod(document: Mapping[Any, Any]) -> bool:
    """Return whether a document is one of HyperPod's."""
    return "SchedulerConfig" in document or "ComputeQuotaTarget" in document


def read_hyperpod(documents: Iterable[Mapping[Any, Any]]) -> Cluster:
    """Return the cluster of these documents. Raises GovernanceError."""
    scheduler, quotas = _Scheduler(), list[_ComputeQuota]()
    for document in documents:
        if "SchedulerConfig" in document:
            scheduler = validated(_SchedulerConfig, document, error=GovernanceError).SchedulerConfig
        else:
            quotas.append(validated(_ComputeQuota, document, error=GovernanceError))
    teams = [each for each in quotas if each.ActivationState == "Enabled"]
    flavors = dict.fromkeys(
        each.InstanceType for team in teams for each in team.ComputeQuotaConfig.ComputeQuotaResources
    )
    fair = scheduler.FairShare == "Enabled"
    return Cluster(
        flavors=tuple(ResourceFlavor(name, {"node.kubernetes.io/instance-type": name}) for name in flavors),
        queues=tuple(_queue(team, tuple(flavors), teams) for team in teams),
        local_queues=tuple(
            LocalQueue(f"{_namespace(team)}/{_namespace(team)}-localqueue", f"{_namespace(team)}-clusterqueue")
            for team in teams
        ),
        priorities={f"{each.Name}-priority": each.Weight for each in scheduler.PriorityClasses},
        settings=Settings(fair_sharing=BOTH_STRATEGIES if fair else None, preemptors_first=fair),
    )


def _namespace(team: _ComputeQuota) -> str:
    return f"hyperpod-ns-{team.ComputeQuotaTarget.TeamName}"


def _queue(team: _ComputeQuota, flavors: tuple[str, ...], teams: Iterable[_ComputeQuota]) -> ClusterQueue:
    """Return a team's queue: of all instance types that any team has, since what has no quota cannot be borrowed."""
    config = team.ComputeQuotaConfig
    sharing = config.ResourceSharingConfig
    resources = sorted(
        {name for each in teams for of in each.ComputeQuotaConfig.ComputeQuotaResources for name in of.amounts()}
    )
    own = {each.InstanceType: each.amounts() for each in config.ComputeQuotaResources}
    absolute = {each.InstanceType: each.amounts() for each in sharing.AbsoluteBorrowLimits}
    rows = []
    for flavor in flavors:
        quotas = {}
        for resource in resources:
            nominal = own.get(flavor, {}).get(resource, 0)
            borrowing = nominal * sharing.BorrowLimit // 100
            if resource in absolute.get(flavor, {}):
                borrowing = absolute[flavor][resource]
            if sharing.Strategy != "LendAndBorrow":
                borrowing = 0
            quotas[resource] = Quota(nominal, borrowing, 0 if sharing.Strategy == "DontLend" else None)
        rows.append((flavor, quotas))
    return ClusterQueue(
        f"{_namespace(team)}-clusterqueue",
        COHORT,
        (ResourceGroup(tuple(resources), tuple(rows)),) if rows else (),
        preemption=Preemption(config.PreemptTeamTasks, "Any", while_borrowing=True),
        weight=float(team.ComputeQuotaTarget.FairShareWeight),
    )
