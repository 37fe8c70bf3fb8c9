"""`srd sweep`: goes on where it was, has the same results here and on a cluster, and says what failed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from srd.sim.experiments.grid import read_grid
from srd.sim.experiments.sweep import DataSet, simulated, sweep
from srd.sim.experiments.sweep_cli import sweep_command
from tests.srd.sim.experiments.test_cli import FABRIC

pytest.importorskip("pyarrow")

GRID = """\
topology: net.yaml
workload: ["incast:3x100KB", "permutation:50KB"]
paths: [1, null]
seeds: 2
"""


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    (tmp_path / "net.yaml").write_text(FABRIC)
    (tmp_path / "grid.yaml").write_text(GRID)
    return tmp_path / "grid.yaml"


def ran(*arguments: str) -> Result:
    return CliRunner().invoke(sweep_command, list(arguments))


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_cluster_of_processes_has_the_same_results_to_the_last_bit(grid: Path, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    for name, workers in (("serial", "1"), ("cluster", "2")):
        done = ran(str(grid), "-o", str(tmp_path / name), "--workers", workers)
        assert done.exit_code == 0, done.output
    serial, cluster = files(tmp_path / "serial"), files(tmp_path / "cluster")
    assert len(serial) == 8 + 1
    assert serial == cluster


def test_it_goes_on_where_it_was(grid: Path, tmp_path: Path) -> None:
    data = DataSet(tmp_path / "out", read_grid(grid))
    cells = data.missing()
    assert len(cells) == 8
    data.add(cells[3], simulated(data.experiments[cells[3]]))
    assert data.missing() == cells[:3] + cells[4:]
    again = DataSet(tmp_path / "out", read_grid(grid))
    done: list[object] = []
    assert sweep(again, workers=1, scheduler=None, done=lambda cell, _: done.append(cell)) == {}
    assert done == cells[:3] + cells[4:]
    assert again.missing() == []
    assert again.figures(cells[3])["flows_complete"] == 3
    grid.write_text(GRID.replace("seeds: 2", "seeds: 3"))
    assert [cell.seed for cell in DataSet(tmp_path / "out", read_grid(grid)).missing()] == [3] * 4


def test_report_and_json(grid: Path, tmp_path: Path) -> None:
    done = ran(str(grid), "-o", str(tmp_path / "out"), "--workers", "1", "-J")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [(case["workload"], case["paths"]) for case in found] == [
        (workload, paths) for workload in ("incast:3x100KB", "permutation:50KB") for paths in (1, None)
    ]
    assert all(case["figures"]["flows_complete"] in (3, 8) for case in found)
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("<img ") == 2
    assert "incast:3x100KB on net.yaml" in page
    assert "srd, 1 path</td>" in page


def test_an_experiment_that_fails_is_named_and_has_no_result(grid: Path, tmp_path: Path) -> None:
    """Its peers cannot open: every link to a host loses all."""
    (tmp_path / "net.yaml").write_text(FABRIC.replace("limit: 64}", "limit: 64, loss: 100%}"))
    grid.write_text("topology: net.yaml\nworkload: 'incast:1x1K'\n")
    done = ran(str(grid), "-o", str(tmp_path / "out"), "--workers", "1")
    assert done.exit_code == 1
    assert "1 of 1 experiments failed, the first: incast:1x1K on net.yaml, srd, seed 1: 1 of 1 peers" in done.output
    assert files(tmp_path / "out") == {}


def test_a_scheduler_that_is_not_there(grid: Path, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    with dask.config.set({"distributed.comm.timeouts.connect": "0.1s"}):
        done = ran(str(grid), "-o", str(tmp_path / "out"), "--scheduler", "tcp://127.0.0.1:1")
    assert done.exit_code == 1
    assert "Error: --scheduler tcp://127.0.0.1:1: " in done.output
