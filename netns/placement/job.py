"""Jobs from YAML files.

    name: allreduce
    ranks: 4
    command: [python3, -m, srd.examples.allreduce]   # of every rank; for `srd-lab run` and for manifests
    topology: {required: 3}      # or preferred; a layer (1 to 4), host, or any label key; omitted: anywhere
    slices: [{layer: 3, size: 2}]            # optional, from the outermost to the innermost
    resources: {cpu: 500m, nvidia.com/gpu: 1}  # of one rank; optional
    env: {LOG: "1"}              # optional
    node_selector: {zone: a}     # optional
    tolerations: [{key: gpu, operator: Exists}]  # optional
    image: example/allreduce:1   # what a cluster runs; optional
    queue: research              # the local queue in a cluster; optional

Every mistake is one line with file, key and value: JobError. Only the first mistake is reported.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from netns.errors import JobError, QuantityError
from netns.inventory.layers import level_named
from netns.inventory.nodes import PODS
from netns.inventory.quantity import parse_quantity
from netns.placement.model import Mode, Request, Slice, Toleration
from netns.yaml_file import Position, first_mistake, load_mapping

MAX_RANKS: Final = 1_000_000
WANTED: Final = "holds no job; give name, ranks and command"

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def _level(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    return level_named(value) if isinstance(value, str) and value else value


Level = Annotated[str, BeforeValidator(_level), Field(min_length=1)]
Count = Annotated[int, Field(ge=1, le=MAX_RANKS)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class JobTopology(_Strict):
    """How close the ranks must, or should, be to each other: the label key of a level, under one of the two names."""

    required: Level | None = None
    preferred: Level | None = None

    @model_validator(mode="after")
    def _one(self) -> JobTopology:
        if self.required is not None and self.preferred is not None:
            raise ValueError("required stands beside preferred; keep one of the two")
        return self


class JobSlice(_Strict):
    """Groups of so many ranks, each within one domain of a layer."""

    layer: Level
    size: Count


class JobToleration(_Strict):
    """As in a pod."""

    key: str = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""


class Job(_Strict):
    """What to run, on how many hosts, and how close to each other."""

    name: str
    """The name of manifests: lower-case letters, digits and '-', at most 63."""

    ranks: Count

    command: tuple[str, ...] = Field(min_length=1, strict=False)
    """The command of every rank; ranks differ by their environment."""

    topology: JobTopology = JobTopology()

    slices: tuple[JobSlice, ...] = Field(default=(), strict=False)
    """From the outermost to the innermost."""

    resources: dict[str, int] = {}
    """Of one rank, in the units of `Node.allocatable`; the file has Kubernetes' quantities."""

    env: dict[Annotated[str, Field(pattern="^[^=]+$")], str] = {}

    node_selector: dict[str, str] = {}

    tolerations: tuple[JobToleration, ...] = Field(default=(), strict=False)

    image: str = ""
    """The container image for manifests; a lab needs none."""

    queue: str = "default"
    """The local queue for manifests."""

    @field_validator("name", "queue")
    @classmethod
    def _named(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise ValueError(f"{value!r} is no name; use lower-case letters, digits and '-', at most 63")
        return value

    @field_validator("resources", mode="before")
    @classmethod
    def _quantities(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        try:
            return {name: parse_quantity(amount, resource=str(name)) for name, amount in value.items()}
        except QuantityError as error:
            raise ValueError(str(error)) from None

    @model_validator(mode="after")
    def _slices_divide(self) -> Job:
        if PODS in self.resources:
            raise ValueError("resources.pods: every rank takes one anyway; leave it out")
        above, what = self.ranks, "ranks"
        for index, each in enumerate(self.slices):
            if above % each.size:
                raise ValueError(f"slices[{index}].size: {each.size} does not divide {above} {what}")
            above, what = each.size, "ranks of the slice around it"
        return self

    def request(self) -> Request:
        """Return the job as a scheduler's request."""
        mode: Mode = "unconstrained"
        if self.topology.required is not None:
            mode = "required"
        elif self.topology.preferred is not None:
            mode = "preferred"
        elif self.slices:
            mode = "slice_only"
        return Request(
            name=self.name,
            count=self.ranks,
            requests=self.resources,
            mode=mode,
            level=self.topology.required or self.topology.preferred,
            slices=tuple(Slice(each.layer, each.size) for each in self.slices),
            node_selector=self.node_selector,
            tolerations=tuple(
                Toleration(each.key, each.operator, each.value, each.effect) for each in self.tolerations
            ),
        )


def read_job(path: Path) -> Job:
    """Return the job in a YAML file. Raises JobError with file, key, value and remedy."""
    try:
        return Job.model_validate(load_mapping(path, error=JobError, wanted=WANTED))
    except ValidationError as error:
        raise JobError(f"{path}: {first_mistake(error, known_keys=_known_keys)}") from None
    except JobError as error:
        raise JobError(f"{path}: {error}") from None


def _known_keys(position: Position) -> list[str]:
    models: dict[str, type[_Strict]] = {"topology": JobTopology, "slices": JobSlice, "tolerations": JobToleration}
    return list((models[str(position[0])] if position else Job).model_fields)
