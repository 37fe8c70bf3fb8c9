"""Measure the cells of a grid that have no result yet, one after the other, each on a lab of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

from netns.base.build import BUILD
from netns.errors import BackendError, ShapeError
from netns.lab.lab import Lab
from netns.observe.machine import machine
from srd.compare.cell import MPTCP, Measurement
from srd.compare.fabric import conditioned, uplink_bps
from srd.compare.grid import Cell, Grid
from srd.compare.outcome import CellOutcome, CellProgress, CellState, OnProgress
from srd.compare.payload import Payloads
from srd.compare.results import Results
from srd.compare.traffic import File
from srd.perf.iperf_json import program
from srd.perf.tcp_socket import BBR, CUBIC, why_unavailable


class CompareWatch(Protocol):
    """Told of a run."""

    def begins(self, cell: Cell) -> None:
        """A cell is measured now."""

    def progress(self, cell: Cell, progress: CellProgress) -> None:
        """More has arrived."""

    def ended(self, cell: Cell, outcome: CellOutcome, *, took_s: float | None) -> None:
        """A cell has its outcome; None: it had it before, or needs no time."""


def lacking() -> dict[str, str]:
    """Return for each transport that this machine lacks the reason in one line."""
    reasons = {algorithm: why_unavailable(algorithm=algorithm, mptcp=False) for algorithm in (CUBIC, BBR)}
    reasons[MPTCP] = why_unavailable(algorithm=CUBIC, mptcp=True)
    return {transport: reason for transport, reason in reasons.items() if reason is not None}


def environment() -> dict[str, Any]:
    """Return machine, versions and build."""
    build = f"{program().removeprefix('open-srd').strip()} {BUILD}".strip()
    return machine() | {"open-srd": build, "numpy": version("numpy"), "uvloop": _uvloop()}


def _uvloop() -> str:
    try:
        return version("uvloop")
    except PackageNotFoundError:  # it is optional
        return "not installed"


def run(grid: Grid, *, results: Results, missing: Mapping[str, str], watch: CompareWatch) -> dict[Cell, CellOutcome]:
    """Return the outcome of each cell, in the grid's order; `missing`: what this machine lacks, by transport.

    What is interrupted leaves no lab, no file, and no result of the cell that was being measured; what the lab has
    failed to measure is `failed`, and no result either.
    """
    found: dict[Cell, CellOutcome] = {}
    with Payloads() as payloads:
        for cell in grid.cells():
            digest, took_s = grid.digest(cell), None
            outcome = results.get(digest)
            if outcome is None and cell.transport in missing:
                outcome = CellOutcome(CellState.UNAVAILABLE, missing[cell.transport])
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
                    outcome = CellOutcome(
                        CellState.FAILED, f"the lab failed, so this is no result, and not kept: {error}"
                    )
                took_s = time.monotonic() - began_at
            found[cell] = outcome
            watch.ended(cell, outcome, took_s=took_s)
    return found


def measure(grid: Grid, cell: Cell, *, payloads: Payloads, on_progress: OnProgress) -> CellOutcome:
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
        return Measurement(
            lab,
            transport=cell.transport,
            flows=flows,
            payload=payload,
            condition=condition,
            timeout_s=grid.timeout_s,
            on_progress=on_progress,
        ).run()
