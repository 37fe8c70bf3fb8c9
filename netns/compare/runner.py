"""Measure the cells of a grid that have no result yet, one after the other, each on a lab of its own."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

from netns.compare.cell import Measurement
from netns.compare.errors import CellError
from netns.compare.fabric import conditioned, uplink_bps
from netns.compare.grid import Cell, Grid
from netns.compare.hosts import WORKER
from netns.compare.outcome import Outcome, State
from netns.compare.payload import Payloads
from netns.compare.progress import OnProgress, Progress
from netns.compare.results import Results
from netns.compare.traffic import File
from netns.compare.transfer import Transfer
from netns.errors import BackendError, ShapeError
from netns.lab.lab import Lab


class Watch(Protocol):
    """Told of a run."""

    def begins(self, cell: Cell) -> None:
        """A cell is measured now."""

    def progress(self, cell: Cell, progress: Progress) -> None:
        """More has arrived."""

    def ended(self, cell: Cell, outcome: Outcome, *, took_s: float | None) -> None:
        """A cell has its outcome; None: it had it before, or needs no time."""


def worker() -> dict[str, Any]:
    """Return what the worker says of itself and this machine: `environment`, `unavailable` transports with the reason.

    Raises CellError if it does not start.
    """
    done = subprocess.run([*WORKER, "--check"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise CellError(f"the worker does not start: {reason}; install open-srd[cli]")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def run(grid: Grid, *, results: Results, missing: Mapping[str, str], watch: Watch) -> dict[Cell, Outcome]:
    """Return the outcome of each cell, in the grid's order; `missing`: what this machine lacks, by transport.

    What is interrupted leaves no lab, no file, and no result of the cell that was being measured; what the lab has
    failed to measure is `failed`, and no result either.
    """
    found: dict[Cell, Outcome] = {}
    with Payloads() as payloads:
        for cell in grid.cells():
            digest, took_s = grid.digest(cell), None
            outcome = results.get(digest)
            if outcome is None and cell.transport in missing:
                outcome = Outcome(State.UNAVAILABLE, missing[cell.transport])
            if outcome is None:
                watch.begins(cell)
                began_at = time.monotonic()
                try:
                    outcome = measure(grid, cell, payloads=payloads, on_progress=partial(watch.progress, cell))
                    results.add(digest, cell, outcome)
                except (
                    BackendError,
                    ShapeError,
                ) as error:  # says nothing about the transport: the next run measures it
                    outcome = Outcome(State.FAILED, f"the lab failed, so this is no result, and not kept: {error}")
                took_s = time.monotonic() - began_at
            found[cell] = outcome
            watch.ended(cell, outcome, took_s=took_s)
    return found


def measure(grid: Grid, cell: Cell, *, payloads: Payloads, on_progress: OnProgress) -> Outcome:
    """Build the cell's lab, measure, and remove it.

    Raises PayloadError; BackendError or ShapeError if the lab, or a worker from outside, came to an end, or this kernel
    cannot do what the condition asks for.
    """
    topology, traffic = grid.fabrics[cell.fabric], grid.workloads[cell.workload]
    condition = grid.conditions[cell.condition]
    flows = traffic.flows(topology, capacity_bps=uplink_bps(topology), seed=cell.seed)
    payload = payloads.of(traffic) if isinstance(traffic, File) else None
    built = conditioned(topology, condition, name=f"compare-{os.getpid()}", seed=cell.seed)
    with Lab.up(built) as lab:
        if payload is not None:
            return Transfer(
                lab,
                transport=cell.transport,
                flow=flows[0],
                payload=payload,
                condition=condition,
                timeout_s=grid.timeout_s,
                on_progress=on_progress,
            ).run()
        return Measurement(
            lab,
            transport=cell.transport,
            flows=flows,
            condition=condition,
            timeout_s=grid.timeout_s,
            on_progress=on_progress,
        ).run()
