"""Sweeps: the experiments of a grid, one after the other here, or on a cluster of Dask's (`distributed`).

A cell that is done is a file of the data set: `flows/KEY.parquet` has its flows, and its figures in its metadata. The
file is there whole or not at all, so an interrupted sweep goes on with the same command. The cluster only computes: it
is given experiments, and gives back rows; this process writes. Results do not depend on who computed them, or in what
order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from srd.proto.base.errors import SrdError
from srd.sim.experiments import parquet
from srd.sim.experiments.errors import ExperimentError
from srd.sim.experiments.experiment import Experiment, run
from srd.sim.experiments.figures import figures, flow_rows
from srd.sim.experiments.grid import ExperimentCell, ExperimentGrid

AHEAD: Final = 4
"""Experiments that a thread of the cluster has or that wait for it: it is never idle, and the scheduler holds few."""
CELL: Final = (
    ("topology", "string"),
    ("workload", "string"),
    ("plan", "string"),
    ("transport", "string"),
    ("controller", "string"),
    ("paths", "int64"),
    ("seed", "int64"),
)
"""Columns of the data set before those of flows, and their types in Arrow."""


@dataclass(frozen=True, slots=True)
class ExperimentOutcome:
    """What came of one cell: rows of its flows and its figures; or why it could not be simulated."""

    rows: tuple[dict[str, Any], ...] = ()
    figures: Mapping[str, float] | None = None
    error: str = ""


def simulated(experiment: Experiment) -> ExperimentOutcome:
    """Run an experiment, wherever that is."""
    try:
        result = run(experiment)
    except SrdError as error:
        return ExperimentOutcome(error=str(error))
    return ExperimentOutcome(tuple(flow_rows(experiment, result)), figures(experiment, result))


class DataSet:
    """The results of cells in a directory."""

    def __init__(self, directory: Path, grid: ExperimentGrid) -> None:
        self.directory = directory
        self.experiments = grid.experiments()
        self._paths = {
            cell: directory / "flows" / f"{experiment.digest()}.parquet"
            for cell, experiment in self.experiments.items()
        }

    def missing(self) -> list[ExperimentCell]:
        """Return the cells without a result, in order."""
        return [cell for cell, path in self._paths.items() if not path.exists()]

    def add(self, cell: ExperimentCell, outcome: ExperimentOutcome) -> None:
        """Write the result of a cell. Raises ExperimentError."""
        rows = [asdict(cell) | row for row in outcome.rows]
        metadata = {"figures": json.dumps(outcome.figures)}
        parquet.write(self._paths[cell], rows, columns=(*CELL, *parquet.FLOWS), metadata=metadata)

    def figures(self, cell: ExperimentCell) -> dict[str, float]:
        """Return the figures of a cell that has a result."""
        found: dict[str, float] = json.loads(parquet.metadata(self._paths[cell], "figures"))
        return found

    def column(self, cell: ExperimentCell, name: str) -> list[Any]:
        """Return a column of a cell that has a result, a value for each flow."""
        return parquet.column(self._paths[cell], name)


def sweep(
    data: DataSet, *, workers: int, scheduler: str | None, done: Callable[[ExperimentCell, ExperimentOutcome], None]
) -> dict[ExperimentCell, str]:
    """Simulate what is missing, and write it; return why cells failed. `done` is called after each.

    `workers`: processes here, 1: this one; `scheduler`: the address of a Dask scheduler instead.
    Raises ExperimentError.
    """
    failed = {}
    missing = data.missing()
    experiments = [data.experiments[cell] for cell in missing]
    here = workers == 1 and scheduler is None
    outcomes = _here(experiments) if here else _on_cluster(experiments, workers=workers, scheduler=scheduler)
    for index, outcome in outcomes:
        cell = missing[index]
        if outcome.figures is None:
            failed[cell] = outcome.error
        else:
            data.add(cell, outcome)
        done(cell, outcome)
    return failed


def _here(experiments: Sequence[Experiment]) -> Iterator[tuple[int, ExperimentOutcome]]:
    for index, experiment in enumerate(experiments):
        yield index, simulated(experiment)


def _on_cluster(
    experiments: Sequence[Experiment], *, workers: int, scheduler: str | None
) -> Iterator[tuple[int, ExperimentOutcome]]:
    try:
        from distributed import Client, LocalCluster, as_completed  # noqa: PLC0415 - an extra, and a second
    except ModuleNotFoundError as error:
        raise ExperimentError(
            f"a cluster needs {error.name}; install it, in the checkout: pip install '.[sweep]', or use --workers 1"
        ) from None
    with ExitStack() as stack:
        try:
            cluster: Any = scheduler or stack.enter_context(
                LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None)
            )
            client = stack.enter_context(Client(cluster))
        except (OSError, ValueError) as error:
            raise ExperimentError(f"--scheduler {scheduler}: {error}") from None
        threads = max(sum(client.nthreads().values()), 1)
        left = enumerate(experiments)
        indices = {}

        def submit() -> Any:
            index, experiment = next(left, (-1, None))
            if experiment is None:
                return None
            future = client.submit(simulated, experiment, pure=False)
            indices[future.key] = index
            return future

        running = as_completed([future for _ in range(AHEAD * threads) if (future := submit()) is not None])
        for future in running:
            index, lost = indices.pop(future.key), future.exception()
            yield index, future.result() if lost is None else ExperimentOutcome(error=f"{type(lost).__name__}: {lost}")
            if (more := submit()) is not None:
                running.add(more)
