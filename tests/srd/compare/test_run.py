"""`srd compare` as a user runs it, on labs; and cells that do not reach their end."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from netns.lab.state import LabDirectory, LabState, recorded_labs
from netns.processes import processes_in
from srd.compare.file import read_grid
from srd.compare.grid import TRANSPORTS, Cell
from srd.compare.outcome import CellOutcome, CellProgress, CellState
from srd.compare.payload import TMPFS
from srd.compare.results import FILE, Results
from srd.compare.runner import run
from tests.patience import PATIENCE_S, wait_until
from tests.programs import run_to_end

pytestmark = pytest.mark.root
FABRIC = "fabrics: {two: {leaf_spine: {spines: 2, link: {delay: 0.2ms, rate: 50mbit}}}}\n"
BULK = FABRIC + "workloads: {bulk: {bulk: {size: 300K}}}\n"


RUN_S = 5 * PATIENCE_S
"""A run is a dozen processes, one after the other."""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "srd", "compare", *arguments]


def compare(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run_to_end(command(*arguments), cwd=cwd, within_s=RUN_S)


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def no_lab_of(process_id: int) -> bool:
    return f"compare-{process_id}" not in recorded_labs()


def test_compare__everything_is_measured_and_written(tmp_path: Path) -> None:
    (tmp_path / "short.yaml").write_text(BULK)
    done = compare("short.yaml", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    out = tmp_path / "out" / "short"
    assert json.loads((out / "report.json").read_text()) == report
    assert [cell["transport"] for cell in report["cells"]] == list(TRANSPORTS)
    assert all(report["environment"][name] for name in ("open-srd", "numpy", "uvloop"))
    for cell in report["cells"]:
        if cell["transport"] in report["unavailable"]:
            assert cell["state"] == "n/a", cell
        else:
            assert (cell["state"], cell["bytes"]) == ("ok", 300 << 10), cell
            assert sum(cell["path_shares"].values()) == pytest.approx(1, abs=0.01)
    assert len(list(csv.DictReader((out / "flows.csv").read_text().splitlines()))) == 4 - len(report["unavailable"])
    assert "<svg" in (out / "report.html").read_text()


def test_compare__goes_on_after_a_signal(tmp_path: Path) -> None:
    (tmp_path / "short.yaml").write_text(BULK.replace("bulk: {size", "file: {size") + "transports: [srd, cubic]\n")
    file = tmp_path / "results" / FILE
    argv = command("short.yaml", "-o", "results")
    with subprocess.Popen(argv, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        wait_until(lambda: lines(file) or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=RUN_S)
    (kept,) = lines(file)
    assert said == f"srd: interrupted; 1 of 2 cells are in results/{FILE}: the same command goes on\n"
    assert process.returncode == 130
    assert no_lab_of(process.pid)
    assert not (TMPFS / f"srd-compare-{process.pid}").exists()
    assert compare("short.yaml", "-o", "results", cwd=tmp_path).returncode == 0
    whole = lines(file)
    assert whole[0] == kept
    assert len({json.loads(line)["digest"] for line in whole}) == len(whole) == 2
    drawn = compare("short.yaml", "-o", "results", "--picture", "p.png", cwd=tmp_path)
    assert drawn.returncode == 0, drawn.stderr
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    assert lines(file) == whole


def test_compare__a_file(tmp_path: Path) -> None:
    (tmp_path / "copy.yaml").write_text(
        FABRIC + "workloads: {copy: {file: {size: 300K}}}\nmust_complete: [srd]\n"
        "wanted: [{transport: srd, figure: goodput, over: cubic, least: 0}]\n"
    )
    own = tmp_path / "own.bin"
    own.write_bytes(os.urandom(1 << 20))
    done = compare("copy.yaml", "--file", "own.bin", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    for cell in report["cells"]:
        if cell["transport"] not in report["unavailable"]:
            assert (cell["state"], cell["bytes"], cell["note"]) == ("ok", 1 << 20, None), cell
            assert cell["resent_fraction"] is not None
            assert cell["progress"][-1][1] == 1 << 20
        if cell["transport"] == "cubic":
            assert max(cell["path_shares"].values()) > 0.9  # one flow, one path
    assert [check["met"] for check in report["checks"]] == [True]
    assert report["incomplete"] == []
    assert own.stat().st_size == 1 << 20


@pytest.mark.long
def test_compare__a_cell_that_must_reach_its_end(tmp_path: Path) -> None:
    (tmp_path / "dead.yaml").write_text(
        FABRIC + "workloads: {copy: {file: {size: 8M}}}\ntransports: [cubic]\nmust_complete: [cubic]\n"
        "conditions: {dead: {busiest_link_fails_at: 10%}}\ntimeout: 1s\n"
    )
    done = compare("dead.yaml", cwd=tmp_path)
    assert done.returncode == 1
    message = "srd: two, dead, copy: cubic: not every cell is ok, which dead requires"
    assert done.stderr.splitlines() == [message]
    (line,) = lines(tmp_path / "out" / "dead" / FILE)
    outcome = json.loads(line)["outcome"]
    assert outcome["state"] == "timeout"
    assert outcome["bytes"] < 8 << 20
    assert "timeout: stopped after 1 s with " in done.stdout


def relay_of(state: LabState) -> int:
    assert state.relay is not None
    return state.relay.pid


def worker_of(state: LabState) -> int:
    return next(process.pid for process, netns in processes_in(state.namespaces).items() if netns.endswith("-h2"))


class Killer:
    """Watches a run, and kills a process of its lab at the first progress."""

    def __init__(self, choose: Callable[[LabState], int] | None) -> None:
        self._choose = choose

    def begins(self, cell: Cell) -> None:
        pass

    def progress(self, cell: Cell, progress: CellProgress) -> None:  # noqa: ARG002 - as Watch has it
        if self._choose is not None:
            state = LabDirectory(f"compare-{os.getpid()}").read()
            assert state is not None
            os.kill(self._choose(state), signal.SIGKILL)
            self._choose = None

    def ended(self, cell: Cell, outcome: CellOutcome, *, took_s: float | None) -> None:
        pass


@pytest.mark.parametrize("workload", ["file", pytest.param("bulk", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("choose", "reason"),
    [pytest.param(relay_of, "no relay answers", marks=pytest.mark.long), (worker_of, "was killed by SIGKILL")],
)
def test_run__what_the_lab_has_failed_to_measure_is_measured_again(
    tmp_path: Path, workload: str, choose: Callable[[LabState], int], reason: str
) -> None:
    (tmp_path / "g.yaml").write_text(
        BULK.replace("bulk: {size: 300K", f"{workload}: {{size: 5M") + "transports: [cubic]\n"
    )
    grid, out = read_grid(tmp_path / "g.yaml"), tmp_path / "out"
    (broken,) = run(grid, results=Results(out), missing={}, watch=Killer(choose)).values()
    assert broken.state is CellState.FAILED
    assert broken.reason is not None
    assert broken.reason.startswith("the lab failed, so this is no result, and not kept: ")
    assert reason in broken.reason
    assert lines(out / FILE) == []
    (again,) = run(grid, results=Results(out), missing={}, watch=Killer(None)).values()
    assert again.state is CellState.OK
    assert len(lines(out / FILE)) == 1


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("nowhere.yaml",), 2, "srd: nowhere.yaml: No such file or directory"),
        (("nowhere.yaml", "--show"), 2, "the built-in grids are demo, incast, reference"),
        (("demo", "--seeds", "0"), 2, "0"),
        (("incast", "--size", "1M"), 2, "no workload of incast sends a file"),
        (("wrong.yaml",), 2, "srd: wrong.yaml: seeds: 'none' is no number"),
        (
            ("incast", "--picture", "p.png"),
            2,
            "out/incast: has no results of incast; measure first: srd compare incast",
        ),
        (("incast", "-o", "file/below"), 1, "give another directory by --output"),
    ],
)
def test_mistakes__one_line_and_the_right_status(
    arguments: tuple[str, ...], status: int, message: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "wrong.yaml").write_text(BULK + "seeds: none\n")
    done = compare(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (status, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_show__prints_a_grid_that_can_be_read(tmp_path: Path) -> None:
    done = compare("reference", "--show", cwd=tmp_path)
    (tmp_path / "own.yaml").write_text(done.stdout)
    assert read_grid(tmp_path / "own.yaml").name == "reference"
