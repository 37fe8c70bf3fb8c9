"""A grid and outcomes for tests of what is made of them."""

from __future__ import annotations

from dataclasses import replace

from netns.topology.model import reference
from srd.compare.grid import Cell, Condition, Grid, WantedFigure
from srd.compare.outcome import CellOutcome, CellState, FlowOutcome, Loads
from srd.compare.traffic import Bulk, File, Rpc

GRID = Grid(
    name="a grid",
    fabrics={"two": reference()},
    transports=("srd", "cubic", "bbr", "mptcp"),
    conditions={"clean": Condition({}), "dead": Condition({}, busiest_link_fails_at=0.4)},
    workloads={"bulk": Bulk(1 << 20), "search": Rpc("web-search", load=0.3, duration_s=1.0, scale=0.01)},
    seeds=(1, 2),
    timeout_s=5.0,
)
FILE_GRID = replace(
    GRID,
    name="a file",
    workloads={"file": File(1 << 20)},
    seeds=(1,),
    wanted=(
        WantedFigure("srd", "goodput", over="cubic", least=2.0),
        WantedFigure("srd", "sent_again", most=0.001, conditions=("clean",)),
    ),
    must_complete=("srd",),
)
"""As that of the demo."""


def done(seconds: float = 2.0, *, sizes: tuple[int, ...] = (1 << 20,)) -> CellOutcome:
    return CellOutcome(
        CellState.OK,
        flows=tuple(FlowOutcome(size, 0.0, seconds, 0.5) for size in sizes),
        size_bytes=sum(sizes),
        elapsed_s=seconds,
        progress=((0.0, 0), (seconds / 2, sum(sizes) // 2), (seconds, sum(sizes))),
        longest_stall_ms=12.0,
        resent_fraction=0.01,
        path_shares={"spine1": 0.5, "spine2": 0.5},
        events=((0.5, "fail leaf1-spine1"),),
        backend="relay",
        loads=Loads(machine_busy=0.5, stolen=0.0, relay_cpu=0.31),
    )


def hung() -> CellOutcome:
    flows = (FlowOutcome(1 << 20, 0.0, 3.0, 0.5), FlowOutcome(1 << 20, 0.0, None, 0.5))
    return CellOutcome(
        CellState.TIMEOUT,
        "stopped after 5 s with 50 % received",
        flows=flows,
        size_bytes=1 << 20,
        elapsed_s=5.0,
        progress=((0.0, 0), (3.0, 1 << 20)),
        note="a <remark>",
    )


def outcomes(grid: Grid = GRID) -> dict[Cell, CellOutcome]:
    """SRD is done, cubic hangs in `dead`, this machine has no BBR, MPTCP's worker fails."""
    made = {}
    for cell in grid.cells():
        outcome = done(sizes=(1_000, 30_000, 1_000_000) if cell.workload == "search" else (1 << 20,))
        if cell.transport == "cubic" and cell.condition == "dead":
            outcome = hung()
        elif cell.transport == "bbr":
            outcome = CellOutcome(CellState.UNAVAILABLE, "tcp: this kernel has no congestion control 'bbr'")
        elif cell.transport == "mptcp":
            outcome = CellOutcome(CellState.FAILED, "h1: boom")
        made[cell] = outcome
    return made
