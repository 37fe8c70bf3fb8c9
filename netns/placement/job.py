"""Jobs from YAML files.

    name: allreduce
    ranks: 4
    command: [python3, -m, srd.examples.allreduce]   # of every rank; for `srd-lab run` and for manifests
    topology: {required: 3}      # or preferred; a layer (1 to 4), host, or any label key; omitted: anywhere
    slices: [{layer: 3, size: 2}]            # optional, from the outermost to the innermost
    resources: {cpu: 500m, nvidia.com/gpu: 1}  # of one rank; optional
    env: {LOG: "1"}              # optional
    leader: {resources: {cpu: 4}}  # optional: rank 0 is the leader of the others, and needs this instead
    node_selector: {zone: a}     # optional
    node_affinity:               # optional, as of pods: alternatives, each with expressions that must all hold
      required: [{match_expressions: [{key: gpu, operator: In, values: [h100, h200]}]}]
      preferred: [{weight: 10, match_expressions: [{key: gpu, operator: In, values: [h200]}]}]
    tolerations: [{key: gpu, operator: Exists}]  # optional
    image: example/allreduce:1   # what a cluster runs; optional
    queue: research              # the local queue in a cluster; optional

Every mistake is one line with file, key and value: JobError. Only the first mistake is reported.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from netns.base.naming import named
from netns.base.yaml_file import Strict, load_mapping, validated
from netns.errors import JobError
from netns.inventory.layers import level_named
from netns.inventory.nodes import PODS
from netns.inventory.quantity import Quantities
from netns.placement.model import Affinity, Expression, Mode, PlacementRequest, Slice, Term, Toleration

MAX_RANKS: Final = 1_000_000
WANTED: Final = "holds no job; give name, ranks and command"

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def _level(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    return level_named(value) if isinstance(value, str) and value else value


def _without_slots(value: Any) -> Any:
    if isinstance(value, dict) and PODS in value:
        raise ValueError(f"{PODS}: every rank takes one anyway; leave it out")
    return value


Level = Annotated[str, BeforeValidator(_level), Field(min_length=1)]
Count = Annotated[int, Field(ge=1, le=MAX_RANKS)]
Resources = Annotated[Quantities, BeforeValidator(_without_slots)]


class JobTopology(Strict):
    """How close the ranks must, or should, be to each other: the label key of a level, under one of the two names."""

    required: Level | None = None
    preferred: Level | None = None

    @model_validator(mode="after")
    def _one(self) -> JobTopology:
        if self.required is not None and self.preferred is not None:
            raise ValueError("required stands beside preferred; keep one of the two")
        return self


class JobSlice(Strict):
    """Groups of so many ranks, each within one domain of a layer."""

    layer: Level
    size: Count


class JobToleration(Strict):
    """As in a pod."""

    key: str = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""


class JobLeader(Strict):
    """Rank 0 as the leader of the other ranks: a pod set of its own, placed with them (Kueue's podset groups)."""

    resources: Resources = Field(default={})


class JobExpression(Strict):
    """A requirement on a label of nodes."""

    key: str = Field(min_length=1)
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[str, ...] = Field(default=(), strict=False)


class JobTerm(Strict):
    """Requirements that must all hold."""

    match_expressions: tuple[JobExpression, ...] = Field(min_length=1, strict=False)

    def term(self) -> Term:
        """Return it as the algorithm takes it."""
        return Term(tuple(Expression(each.key, each.operator, each.values) for each in self.match_expressions))


class JobPreferredTerm(JobTerm):
    """A term, and what a node that matches it is worth."""

    weight: int = Field(ge=1, le=100)


class JobNodeAffinity(Strict):
    """As in a pod: one of `required` must hold, each of `preferred` that holds adds its weight."""

    required: tuple[JobTerm, ...] = Field(default=(), strict=False)
    preferred: tuple[JobPreferredTerm, ...] = Field(default=(), strict=False)

    def affinity(self) -> Affinity:
        """Return it as the algorithm takes it."""
        return Affinity(
            required=tuple(each.term() for each in self.required) or None,
            preferred=tuple((each.weight, each.term()) for each in self.preferred),
        )


class Job(Strict):
    """What to run, on how many hosts, and how close to each other."""

    name: str
    """The name of manifests: lower-case letters, digits and '-', at most 63."""

    ranks: Count

    command: tuple[str, ...] = Field(min_length=1, strict=False)
    """The command of every rank; ranks differ by their environment."""

    topology: JobTopology = JobTopology()

    slices: tuple[JobSlice, ...] = Field(default=(), strict=False)
    """From the outermost to the innermost."""

    resources: Resources = Field(default={})
    """Of one rank, in the units of `Node.allocatable`; the file has Kubernetes' quantities."""

    leader: JobLeader | None = None
    """What rank 0 needs instead, if it leads the others. Slices are then of the others."""

    env: dict[Annotated[str, Field(pattern="^[^=]+$")], str] = Field(default={})

    node_selector: dict[str, str] = Field(default={})

    node_affinity: JobNodeAffinity | None = None
    """Preferences count with Kueue's feature gate TASRespectNodeAffinityPreferred only."""

    tolerations: tuple[JobToleration, ...] = Field(default=(), strict=False)

    image: str = ""
    """The container image for manifests; a lab needs none."""

    queue: str = "default"
    """The local queue for manifests."""

    @field_validator("name", "queue")
    @classmethod
    def _named(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise ValueError(
                f"{value!r} is no name; use lower-case letters, digits and '-', at most 63, first and last no '-'"
            )
        return value

    @model_validator(mode="after")
    def _slices_divide(self) -> Job:
        if self.leader is not None and self.ranks < 2:
            raise ValueError("leader: leads the other ranks; give at least 2 ranks")
        above, what = self.workers, "ranks" if self.leader is None else "ranks beside the leader"
        for index, each in enumerate(self.slices):
            if above % each.size:
                raise ValueError(f"slices[{index}].size: {each.size} does not divide {above} {what}")
            above, what = each.size, "ranks of the slice around it"
        return self

    @property
    def workers(self) -> int:
        """The number of ranks beside the leader; all of them, if there is none."""
        return self.ranks - (self.leader is not None)

    def requests(self) -> tuple[PlacementRequest, ...]:
        """Return the job as a scheduler's requests: its ranks, and their leader if there is one."""
        workers = self._request()
        if self.leader is None:
            return (workers,)
        leader = replace(workers, name=f"{self.name}-leader", count=1, requests=self.leader.resources, slices=())
        return replace(workers, group=self.name), replace(leader, group=self.name)

    def _request(self) -> PlacementRequest:
        mode: Mode = "unconstrained"
        if self.topology.required is not None:
            mode = "required"
        elif self.topology.preferred is not None:
            mode = "preferred"
        elif self.slices:
            mode = "slice_only"
        return PlacementRequest(
            name=self.name,
            count=self.workers,
            requests=self.resources,
            mode=mode,
            level=self.topology.required or self.topology.preferred,
            slices=tuple(Slice(each.layer, each.size) for each in self.slices),
            node_selector=self.node_selector,
            tolerations=tuple(
                Toleration(each.key, each.operator, each.value, each.effect) for each in self.tolerations
            ),
            affinity=None if self.node_affinity is None else self.node_affinity.affinity(),
        )


def read_job(path: Path) -> Job:
    """Return the job in a YAML file. Raises JobError with file, key, value and remedy."""
    with named(f"{path}: ", JobError):
        return validated(Job, load_mapping(path, error=JobError, wanted=WANTED), error=JobError)
