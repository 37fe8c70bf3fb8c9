"""Grids of experiments, from YAML: every combination of the values given is a cell.

    name: paths                        # optional: the file's name without .yaml
    topology: [incast48, my.yaml]      # each of these is one value, or a list of them
    workload: [permutation:2MB, "websearch:0.6:500"]
    transport: srd
    paths: [1, 4, 64]                  # null: the settings' own number
    plan: [null, cut.yaml]             # failures, as of `srd sim --plan`
    controller: null
    seeds: 5                           # 1 to 5, or a list
    limit: 1s                          # virtual time after which flows are given up

Names of files are relative to the grid's. A cell's key is a hash of all that decides its result, so a cell that a
change of the grid leaves as it was is not simulated again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import Field

from netns.base.units import UnitError, parse_duration_us
from netns.base.yaml_file import Strict, load_mapping, validated
from netns.errors import LabError
from netns.topology.model import Topology
from srd.sim.experiments.errors import ExperimentError
from srd.sim.experiments.experiment import Experiment, experiment_of
from srd.sim.experiments.fabric import read_fabric
from srd.sim.transports import TRANSPORTS

T = TypeVar("T")
MAX_CELLS: Final = 1_000_000


class _File(Strict):
    name: str | None = None
    topology: str | list[str]
    workload: str | list[str]
    transport: str | list[str] = "srd"
    paths: int | list[int | None] | None = None
    plan: str | list[str | None] | None = None
    controller: str | list[str | None] | None = None
    seeds: int | list[int] = Field(default=1)
    limit: str | int | float = "1s"


@dataclass(frozen=True, slots=True)
class ExperimentCell:
    """One experiment of a grid, by the names that the grid gives its parts."""

    topology: str
    workload: str
    plan: str | None
    transport: str
    controller: str | None
    paths: int | None
    seed: int

    @property
    def case(self) -> ExperimentCell:
        """Return what cells that differ in the seed only have in common: itself without it."""
        return replace(self, seed=0)

    @property
    def scene(self) -> str:
        """Return where it happens."""
        return f"{self.workload} on {self.topology}" + (f", {self.plan}" if self.plan else "")

    @property
    def contestant(self) -> str:
        """Return what is compared there."""
        paths = f", {self.paths} path{'s' if self.paths > 1 else ''}" if self.paths else ""
        return self.transport + (f", {self.controller}" if self.controller else "") + paths


@dataclass(frozen=True, slots=True)
class ExperimentGrid:
    """The cells of a grid, in order."""

    name: str
    cells: tuple[ExperimentCell, ...]
    limit_s: float
    base: Path

    def experiments(self) -> dict[ExperimentCell, Experiment]:
        """Return each cell's experiment. Raises ExperimentError for the first that cannot be."""
        topologies: dict[str, Topology] = {}
        found = {}
        for cell in self.cells:
            try:
                if cell.topology not in topologies:
                    topologies[cell.topology] = read_fabric(self._place(cell.topology))
                found[cell] = experiment_of(
                    topologies[cell.topology],
                    workload=self._place(cell.workload) if cell.workload.endswith(".cm") else cell.workload,
                    plan=None if cell.plan is None else Path(self._place(cell.plan)),
                    transport=cell.transport,
                    controller=cell.controller,
                    paths=cell.paths,
                    seed=cell.seed,
                    limit_s=self.limit_s,
                )
            except LabError as error:
                raise ExperimentError(str(error)) from None
        return found

    def _place(self, name: str) -> str:
        """Return a file beside the grid's if there is one, else the name as it is."""
        beside = self.base / name
        return str(beside) if beside.exists() else name


def read_grid(path: Path) -> ExperimentGrid:
    """Return the grid in a file. Raises ExperimentError with file, key and value."""
    try:
        file = validated(
            _File,
            load_mapping(path, error=ExperimentError, wanted="holds no grid; give topology and workload"),
            error=ExperimentError,
        )
        return _grid(file, path)
    except ExperimentError as error:
        raise ExperimentError(f"{path}: {error}") from None


def _grid(file: _File, path: Path) -> ExperimentGrid:
    seeds = list(range(1, file.seeds + 1)) if isinstance(file.seeds, int) else file.seeds
    axes: dict[str, list[Any]] = {
        "topology": _listed(file.topology),
        "workload": _listed(file.workload),
        "plan": _listed(file.plan),
        "transport": _listed(file.transport),
        "controller": _listed(file.controller),
        "paths": _listed(file.paths),
        "seeds": seeds,
    }
    count = 1
    for key, values in axes.items():
        if not values or len(set(values)) < len(values):
            raise ExperimentError(f"{key}: no value, or one twice")
        count *= len(values)
    if count > MAX_CELLS:
        raise ExperimentError(f"{count} cells; at most {MAX_CELLS}")
    for transport in axes["transport"]:
        if transport not in TRANSPORTS:
            raise ExperimentError(f"transport: {transport!r} is none of {', '.join(TRANSPORTS)}")
    try:
        limit_s = parse_duration_us(file.limit) / 1e6
    except UnitError as error:
        raise ExperimentError(f"limit: {error}") from None
    cells = tuple(ExperimentCell(*values) for values in product(*axes.values()))
    return ExperimentGrid(file.name or path.stem, cells, limit_s, path.parent)


def _listed(value: T | list[T]) -> list[T]:
    return value if isinstance(value, list) else [value]
