"""Cells, their order, and what their digests depend on."""

from __future__ import annotations

from dataclasses import replace

from netns.topology.model import reference
from srd.compare.grid import Cell, Condition, describe_fabric
from srd.compare.traffic import Bulk
from tests.srd.compare.cases import GRID

CELL = Cell("two", 1, "clean", "bulk", "srd")


def test_cells__transports_take_turns_and_seeds_are_outermost() -> None:
    cells = list(GRID.cells())
    assert len(cells) == len(set(cells)) == 2 * 2 * 2 * 4
    assert [cell.transport for cell in cells[:8]] == ["srd", "cubic", "bbr", "mptcp"] * 2
    assert [cell.seed for cell in cells] == [1] * 16 + [2] * 16


def test_digest__differs_with_whatever_decides_a_measurement() -> None:
    others = [
        GRID.digest(replace(CELL, seed=2)),
        GRID.digest(replace(CELL, condition="dead")),
        GRID.digest(replace(CELL, workload="search")),
        GRID.digest(replace(CELL, transport="cubic")),
        replace(GRID, timeout_s=6.0).digest(CELL),
        replace(GRID, fabrics={"two": replace(reference(), mtu=1500)}).digest(CELL),
        replace(GRID, conditions={"clean": Condition({"loss": "1%"})}).digest(CELL),
        replace(GRID, workloads={"bulk": Bulk(1)}).digest(CELL),
    ]
    assert len({GRID.digest(CELL), *others}) == 1 + len(others)


def test_digest__does_not_depend_on_names() -> None:
    renamed = replace(
        GRID,
        name="other",
        fabrics={"a pair": reference(name="pair")},
        conditions={"fine": Condition({})},
        workloads={"load": Bulk(1 << 20)},
    )
    assert renamed.digest(Cell("a pair", 1, "fine", "load", "srd")) == GRID.digest(CELL)


def test_describe_fabric__one_line() -> None:
    assert describe_fabric(reference()) == (
        "2 hosts, 2 leaves, 4 spines; MTU 9000; shaped links: limit 10 delay 500us rate 250mbit"
    )
