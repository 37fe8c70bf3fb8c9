"""Clusters from Kueue's YAML: kueue.x-k8s.io/v1beta1 and v1beta2, several documents in a file.

ResourceFlavor, ClusterQueue, Cohort, LocalQueue, WorkloadPriorityClass, Topology, Configuration (fair sharing, pods
ready) are read; other kinds are skipped. Keys of a spec that Kueue does not have are mistakes, as are values that it
would refuse. Every mistake is one line with file, document and key: GovernanceError.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from netns.base.naming import named
from netns.base.yaml_file import MAX_FILE_BYTES, mapping_of, validated
from netns.errors import GovernanceError, QuantityError
from netns.governance.cluster import Cluster
from netns.governance.hyperpod_file import is_hyperpod, read_hyperpod
from netns.governance.model import ClusterQueue, Cohort, Fungibility, LocalQueue, Preemption, Quota, ResourceGroup
from netns.governance.settings import BOTH_STRATEGIES, GATES, Settings
from netns.inventory.nodes import Effect, Taint
from netns.inventory.quantity import parse_quantity
from netns.placement.model import Expression, ResourceFlavor, Toleration

WANTED: Final = "holds no mapping; give objects of Kueue, or HyperPod's ClusterSchedulerConfig and ComputeQuota"
_SEPARATOR: Final = re.compile(rb"^---(?:[ \t].*)?$", re.MULTILINE)


class _Object(BaseModel):
    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, alias_generator=to_camel, arbitrary_types_allowed=True
    )


class _Open(_Object):
    model_config = ConfigDict(extra="ignore")


def _weight(value: Any) -> Any:
    try:
        return parse_quantity(value, resource="cpu") / 1000
    except QuantityError as error:
        raise ValueError(f"{value!r} is no weight") from error


Weight = Annotated[float, BeforeValidator(_weight)]
Policy = Literal["None", "Hold", "HoldAndDrain"]


class _Metadata(_Open):
    name: str = Field(default="", max_length=253)
    namespace: str = "default"


class _FairSharing(_Object):
    weight: Weight = 1.0


class _Resource(_Object):
    name: str
    nominal_quota: int | float | str
    borrowing_limit: int | float | str | None = None
    lending_limit: int | float | str | None = None

    def quota(self, *, of_queue: bool, in_tree: bool) -> Quota:
        nominal, borrowing, lending = (
            None if text is None else parse_quantity(text, resource=self.name)
            for text in (self.nominal_quota, self.borrowing_limit, self.lending_limit)
        )
        assert nominal is not None  # noqa: S101 - a required field
        if not in_tree and (borrowing is not None or lending is not None):
            raise ValueError(
                "borrowingLimit and lendingLimit need a cohort" if of_queue else "limits need a parentName"
            )
        if of_queue and lending is not None and lending > nominal:
            raise ValueError("lendingLimit: more than nominalQuota")
        return Quota(nominal, borrowing, lending)


class _Flavor(_Object):
    name: str
    resources: tuple[_Resource, ...] = Field(strict=False, min_length=1)


class _Group(_Object):
    covered_resources: tuple[str, ...] = Field(strict=False, min_length=1)
    flavors: tuple[_Flavor, ...] = Field(strict=False, min_length=1, max_length=64)

    @model_validator(mode="after")
    def _alike(self) -> _Group:
        for index, flavor in enumerate(self.flavors):
            if tuple(each.name for each in flavor.resources) != self.covered_resources:
                raise ValueError(f"flavors[{index}].resources: not those of coveredResources, in their order")
        return self


def _groups(groups: Iterable[_Group], *, of_queue: bool, in_tree: bool) -> tuple[ResourceGroup, ...]:
    found: list[ResourceGroup] = []
    for at, group in enumerate(groups):
        flavors = []
        for flavor in group.flavors:
            quotas = {}
            for each in flavor.resources:
                where = f"spec.resourceGroups[{at}].flavors.{flavor.name}.{each.name}"
                with named(f"{where}: ", QuantityError, ValueError, error=GovernanceError):
                    quotas[each.name] = each.quota(of_queue=of_queue, in_tree=in_tree)
            flavors.append((flavor.name, quotas))
        found.append(ResourceGroup(group.covered_resources, tuple(flavors)))
    names = [name for group in found for name, _ in group.flavors]
    resources = [name for group in found for name in group.resources]
    for twice in [each for each in (*names, *resources) if names.count(each) > 1 or resources.count(each) > 1]:
        raise GovernanceError(f"spec.resourceGroups: {twice} is in two groups; keep one")
    return tuple(found)


class _Requirement(_Object):
    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = Field(default=(), strict=False)


class _Selector(_Object):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[_Requirement, ...] = Field(default=(), strict=False)

    def expressions(self) -> tuple[Expression, ...]:
        """Return them as one list."""
        labels = (Expression(key, "In", (value,)) for key, value in self.match_labels.items())
        return (*labels, *(Expression(each.key, each.operator, each.values) for each in self.match_expressions))


class _BorrowWithin(_Object):
    policy: Literal["Never", "LowerPriority"] = "Never"
    max_priority_threshold: int | None = None


class _Preemption(_Object):
    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "Never"
    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = "Never"
    borrow_within_cohort: _BorrowWithin = _BorrowWithin()

    @model_validator(mode="after")
    def _sensible(self) -> _Preemption:
        if self.reclaim_within_cohort == "Never" and self.borrow_within_cohort.policy != "Never":
            raise ValueError("borrowWithinCohort: needs reclaimWithinCohort other than Never")
        return self

    def rules(self) -> Preemption:
        """Return the rules."""
        borrow = self.borrow_within_cohort
        while_borrowing = borrow.policy != "Never"
        return Preemption(
            self.within_cluster_queue, self.reclaim_within_cohort, while_borrowing, borrow.max_priority_threshold
        )


class _Fungibility(_Object):
    when_can_borrow: Literal["MayStopSearch", "TryNextFlavor", "Borrow"] = "MayStopSearch"
    when_can_preempt: Literal["MayStopSearch", "TryNextFlavor", "Preempt"] = "TryNextFlavor"
    preference: Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"] | None = None

    def rules(self) -> Fungibility:
        """Return the rules; Borrow and Preempt are v1beta1's names."""
        borrow, preempt = (
            "TryNextFlavor" if each == "TryNextFlavor" else "MayStopSearch"
            for each in (self.when_can_borrow, self.when_can_preempt)
        )
        if self.preference is not None and (borrow, preempt) != ("TryNextFlavor", "TryNextFlavor"):
            raise GovernanceError("spec.flavorFungibility.preference: needs both fields TryNextFlavor")
        return Fungibility(borrow, preempt, self.preference or "BorrowingOverPreemption")


class _AdmissionScope(_Object):
    admission_mode: Literal["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"]


class _QueueSpec(_Object):
    cohort: str | None = None
    """v1beta1's name of cohortName."""
    cohort_name: str | None = None
    queueing_strategy: Literal["BestEffortFIFO", "StrictFIFO"] = "BestEffortFIFO"
    namespace_selector: _Selector | None = None
    resource_groups: tuple[_Group, ...] = Field(default=(), strict=False, max_length=16)
    preemption: _Preemption = _Preemption()
    flavor_fungibility: _Fungibility = _Fungibility()
    fair_sharing: _FairSharing = _FairSharing()
    stop_policy: Policy = "None"
    admission_checks: tuple[str, ...] = Field(default=(), strict=False)
    admission_checks_strategy: dict[str, Any] = {}
    admission_scope: _AdmissionScope | None = None

    def made(self, name: str) -> ClusterQueue:
        """Return the queue."""
        cohort = self.cohort_name or self.cohort or None
        checks = [each.get("name", "") for each in self.admission_checks_strategy.get("admissionChecks", ())]
        return ClusterQueue(
            name,
            cohort,
            _groups(self.resource_groups, of_queue=True, in_tree=cohort is not None),
            self.queueing_strategy,
            self.preemption.rules(),
            self.flavor_fungibility.rules(),
            self.fair_sharing.weight,
            None if self.namespace_selector is None else self.namespace_selector.expressions(),
            self.admission_scope is not None and self.admission_scope.admission_mode.startswith("Usage"),
            (*self.admission_checks, *checks),
            self.stop_policy,
        )


class _CohortSpec(_Object):
    parent: str | None = None
    """v1beta1's name of parentName."""
    parent_name: str | None = None
    resource_groups: tuple[_Group, ...] = Field(default=(), strict=False)
    fair_sharing: _FairSharing = _FairSharing()

    def made(self, name: str) -> Cohort:
        """Return the cohort."""
        parent = self.parent_name or self.parent or None
        groups = _groups(self.resource_groups, of_queue=False, in_tree=parent is not None)
        return Cohort(name, parent, groups, self.fair_sharing.weight)


class _LocalSpec(_Object):
    cluster_queue: str
    stop_policy: Policy = "None"
    fair_sharing: _FairSharing = _FairSharing()


class _Taint(_Object):
    key: str
    value: str = ""
    effect: Effect


class _Toleration(_Open):
    key: str = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: str = ""


class _FlavorSpec(_Object):
    node_labels: dict[str, str] = {}
    node_taints: tuple[_Taint, ...] = Field(default=(), strict=False)
    tolerations: tuple[_Toleration, ...] = Field(default=(), strict=False)
    topology_name: str | None = None

    def made(self, name: str) -> ResourceFlavor:
        """Return the flavor."""
        taints = tuple(Taint(each.key, each.value, each.effect) for each in self.node_taints)
        tolerations = tuple(Toleration(each.key, each.operator, each.value, each.effect) for each in self.tolerations)
        return ResourceFlavor(name, self.node_labels, taints, tolerations, self.topology_name)


class _Level(_Object):
    node_label: str


class _TopologySpec(_Object):
    levels: tuple[_Level, ...] = Field(strict=False, min_length=1)


class _Fair(_Open):
    enable: bool = True
    preemption_strategies: tuple[Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"], ...] = Field(
        default=BOTH_STRATEGIES, strict=False
    )


class _WaitForPodsReady(_Open):
    enable: bool = True
    block_admission: bool = False


class _Document(_Open):
    api_version: str = ""
    kind: str = ""
    metadata: _Metadata = _Metadata()
    spec: dict[str, Any] = {}
    value: int | None = None
    fair_sharing: _Fair | None = None
    wait_for_pods_ready: _WaitForPodsReady | None = None
    feature_gates: dict[str, bool] = {}
    items: tuple[dict[str, Any], ...] = Field(default=(), strict=False)


def read_cluster(paths: Iterable[Path]) -> Cluster:
    """Return what all these files define together. Raises GovernanceError."""
    found = Cluster()
    for path in paths:
        try:
            found |= cluster_of(path.read_bytes()[: MAX_FILE_BYTES + 1])
        except OSError as error:
            raise GovernanceError(f"{path}: {error.strerror}") from None
        except GovernanceError as error:
            raise GovernanceError(f"{path}: {error}") from None
    _check(found)
    return found


def cluster_of(content: bytes) -> Cluster:
    """Return what a file's content defines. Raises GovernanceError, without the file's name."""
    found, hyperpod = Cluster(), list[Mapping[Any, Any]]()
    parts = [part for part in _SEPARATOR.split(content) if _has_content(part)]
    for number, part in enumerate(parts, 1):
        where = f"document {number}: " if len(parts) > 1 else ""
        with named(where, GovernanceError):
            document = mapping_of(part, error=GovernanceError, wanted=WANTED)
            if is_hyperpod(document):
                hyperpod.append(document)
            else:
                found |= _read(document)
    return found | read_hyperpod(hyperpod) if hyperpod else found


def _has_content(part: bytes) -> bool:
    return any(line.strip() and not line.lstrip().startswith(b"#") for line in part.splitlines())


def _read(data: Mapping[Any, Any]) -> Cluster:
    document = validated(_Document, data, error=GovernanceError)
    if document.kind == "List":
        found = Cluster()
        for item in document.items:
            found |= _read(item)
        return found
    if document.kind == "Configuration":
        return Cluster(settings=_settings(document))
    if not document.api_version.startswith("kueue.x-k8s.io/"):
        if document.kind:
            return Cluster()  # a Namespace, a Job: nothing that is defined here
        raise GovernanceError(f"kind: missing; {WANTED}")
    with named(f"{document.kind} {document.metadata.name}: ", GovernanceError):
        return _object(document)


def _object(document: _Document) -> Cluster:
    name = document.metadata.name
    if not name:
        raise GovernanceError("metadata.name: missing")

    def spec(model: type[Any]) -> Any:
        with named("spec.", GovernanceError):
            return validated(model, document.spec, error=GovernanceError)

    match document.kind:
        case "ClusterQueue":
            return Cluster(queues=(spec(_QueueSpec).made(name),))
        case "Cohort":
            return Cluster(cohorts=(spec(_CohortSpec).made(name),))
        case "ResourceFlavor":
            return Cluster(flavors=(spec(_FlavorSpec).made(name),))
        case "Topology":
            return Cluster(topologies={name: tuple(each.node_label for each in spec(_TopologySpec).levels)})
        case "LocalQueue":
            local = spec(_LocalSpec)
            key = f"{document.metadata.namespace}/{name}"
            return Cluster(
                local_queues=(LocalQueue(key, local.cluster_queue, local.fair_sharing.weight, local.stop_policy),)
            )
        case "WorkloadPriorityClass":
            if document.value is None:
                raise GovernanceError("value: missing")
            return Cluster(priorities={name: document.value})
        case _:
            return Cluster()


def _settings(document: _Document) -> Settings:
    found = Settings()
    fair, ready = document.fair_sharing, document.wait_for_pods_ready
    if fair is not None and fair.enable:
        if len(set(fair.preemption_strategies)) != len(fair.preemption_strategies) or (
            fair.preemption_strategies == BOTH_STRATEGIES[::-1]
        ):
            raise GovernanceError("fairSharing.preemptionStrategies: give one, or LessThanOrEqualToFinalShare first")
        found = replace(found, fair_sharing=fair.preemption_strategies or BOTH_STRATEGIES, preemptors_first=True)
    if ready is not None and ready.enable:
        found = replace(found, block_admission=ready.block_admission)
    gates: dict[str, Any] = {GATES[gate]: on for gate, on in document.feature_gates.items() if gate in GATES}
    return replace(found, **gates)


def _check(cluster: Cluster) -> None:
    """Raise GovernanceError for what refers to nothing, or stands twice."""
    for what, names in (
        ("ClusterQueue", [each.name for each in cluster.queues]),
        ("LocalQueue", [each.key for each in cluster.local_queues]),
        ("ResourceFlavor", [each.name for each in cluster.flavors]),
        ("Cohort", [each.name for each in cluster.cohorts]),
    ):
        for twice in {name for name in names if names.count(name) > 1}:
            raise GovernanceError(f"{what} {twice}: is given twice; keep one")
    if not cluster.queues:
        raise GovernanceError("no ClusterQueue in these files; give at least one")
    for missing in _missing(cluster):
        raise GovernanceError(missing)


def _missing(cluster: Cluster) -> Iterator[str]:
    queues = {each.name for each in cluster.queues}
    flavors = {each.name for each in cluster.flavors}
    for local in cluster.local_queues:
        if local.cluster_queue not in queues:
            yield f"LocalQueue {local.key}: spec.clusterQueue: there is no ClusterQueue {local.cluster_queue}"
    for queue in cluster.queues:
        for group in queue.groups:
            for name, _ in group.flavors:
                if name not in flavors:
                    yield f"ClusterQueue {queue.name}: spec.resourceGroups: there is no ResourceFlavor {name}"
