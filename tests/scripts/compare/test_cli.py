"""scripts/demo.py as a process, as a user runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from rich.console import Console

from netns.lab.state import recorded_labs
from scripts.compare import cli, contestants
from scripts.compare import report as report_module
from scripts.compare.conditions import CONDITIONS
from scripts.compare.contestants import CONTESTANTS
from scripts.compare.errors import CompareError
from scripts.compare.experiment import Experiment
from scripts.compare.payload import TMPFS
from tests.patience import PATIENCE_S

ROOT: Final = Path(cli.__file__).parent.parent.parent
DEMO: Final = ROOT / "scripts" / "demo.py"


SCRIPT: Final = """
import sys
from scripts.compare import cli, contestants
cli.LAB_NAME = sys.argv.pop(1)  # a user's demo may be running under the default name
cli.TRANSFER_BOUND_S = 3.0
sys.exit(cli.run())
"""


def demo(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(DEMO), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        timeout=PATIENCE_S,
    )


@pytest.mark.parametrize(
    ("arguments", "status", "named"),
    [
        (("--only", "clean,fog"), 2, "'fog' is none of clean, loss, blackhole"),
        (("--protocols", "quic"), 2, "'quic' is none of srd, tcp-cubic, tcp-bbr, mptcp"),
        (("--size", "-1"), 2, "-1"),
        (("--rounds", "0"), 2, "0"),
        (("--file", "nowhere.iso"), 1, "nowhere.iso: No such file"),
        (("--picture", "x.png"), 1, "out/report.json: No such file"),
    ],
)
def test_errors__one_line_and_the_right_status(
    arguments: tuple[str, ...], status: int, named: str, tmp_path: Path
) -> None:
    done = demo(*arguments, cwd=tmp_path)
    assert done.returncode == status
    assert named in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_picture__is_drawn_from_the_last_report(report: report_module.Report, tmp_path: Path) -> None:
    report_module.write(report, tmp_path / "out" / "report.json")
    done = demo("--picture", "docs/demo.png", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "wrote docs/demo.png\n")
    assert (tmp_path / "docs" / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_choice__the_tables_order_decides() -> None:
    choice = cli.Choice({"a": 1, "b": 2, "c": 3})
    assert choice.convert("c,a", None, None) == (1, 3)
    assert choice.convert((2,), None, None) == (2,)
    assert len(CONDITIONS) == 3
    assert len(CONTESTANTS) == 4


@pytest.mark.root
def test_compare__over_the_reference_fabric(tmp_path: Path) -> None:
    name = f"cli{os.getpid()}"
    arguments = ["--protocols", "tcp-cubic,mptcp", "--only", "clean,blackhole", "--size", "20000000", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, name, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result == report_module.read(tmp_path / "out" / "report.json")
    assert (tmp_path / "out" / "report.html").read_text().startswith("<!doctype html>")
    clean, blackhole = result["conditions"]["clean"], result["conditions"]["blackhole"]
    assert clean["tcp-cubic"]["sha256_ok"]
    assert max(clean["tcp-cubic"]["path_shares"]) > 0.99  # one flow, one path
    assert not blackhole["tcp-cubic"]["completed"]  # its failure stops the flow
    assert 0.4 <= blackhole["tcp-cubic"]["bytes"] / 20_000_000 < 1
    assert blackhole["tcp-cubic"]["longest_stall_ms"] > 1_000
    if "mptcp" not in result["unavailable"]:
        assert clean["mptcp"]["sha256_ok"]
        assert clean["mptcp"]["note"] is None  # all four subflows existed
        assert min(clean["mptcp"]["path_shares"]) > 0.05
    assert name not in recorded_labs()
    assert not (TMPFS / f"srd-{name}").exists()


@pytest.mark.root
@pytest.mark.parametrize("key", ["srd", "mptcp"])
def test_compare__nothing_to_compare_bad_flow(key: str) -> None:
    lame = replace(contestants.BY_KEY[key], why_unavailable=lambda: f"{key}: no legs")
    experiment = Experiment(contestants=(lame,), conditions=(), rounds=1, bound_s=1)
    name = f"bad{os.getpid()}"
    with pytest.raises(CompareError, match=f"{key}: no legs"):
        cli.compare(experiment, file=None, byte_count=1, lab_name=name, console=Console(quiet=True))
    assert name not in recorded_labs()


@pytest.mark.root
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_signal__removes_everything(ending: signal.Signals, tmp_path: Path) -> None:
    name = f"sig{os.getpid()}"
    command = [sys.executable, "-c", SCRIPT, name, "--protocols", "tcp-cubic", "--only", "clean"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("clean"):
                break
        assert name in recorded_labs()
        process.send_signal(ending)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + ending
    assert name not in recorded_labs()
    namespaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert name not in namespaces
    assert not (TMPFS / f"srd-{name}").exists()
    assert not (tmp_path / "out").exists()
