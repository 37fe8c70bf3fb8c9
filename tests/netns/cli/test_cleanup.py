"""`srd-lab cleanup`: removes crashed labs only."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from netns.cli import main
from netns.lab.builder import exists
from netns.lab.lab import Lab
from netns.lab.state import LabDirectory
from netns.netem.shape import Shape
from netns.processes import start_time_ticks
from netns.topology.model import leaf_spine

pytestmark = pytest.mark.root

OWNER = """
import os, sys
from netns.lab.lab import Lab
from netns.netem.shape import Shape
from netns.topology.model import leaf_spine
with Lab.up(leaf_spine(name=sys.argv[1], spines=1, shape=Shape(delay_us=1)), backend="relay"):
    print("up", flush=True)
    sys.stdin.read()
"""


def test_cleanup__removes_crashed_labs_only(lab_name: str, another_name: Callable[[], str]) -> None:
    whole, empty = another_name(), another_name()
    command = [sys.executable, "-c", OWNER, lab_name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "up\n"
        owner.send_signal(signal.SIGKILL)
    relay = json.loads((LabDirectory(lab_name).path / "state.json").read_text())["relay"]["pid"]
    LabDirectory(empty).path.mkdir()
    with Lab.up(leaf_spine(name=whole, spines=1, shape=Shape(delay_us=1)), backend="relay") as lab:
        would = CliRunner().invoke(main, ["cleanup", "--dry-run"]).output
        assert f"would remove lab {lab_name}: its owner (process {owner.pid}) is dead" in would
        assert exists(f"{lab_name}-h1")
        done = CliRunner().invoke(main, ["cleanup"])
        assert done.exit_code == 0
        assert f"removed lab {lab_name}: " in done.output
        assert f"removed {LabDirectory(empty).path}: it holds no record" in done.output
        assert whole not in done.output
        assert not lab.status()["problems"]
    assert not exists(f"{lab_name}-h1")
    assert not LabDirectory(lab_name).path.exists()
    assert start_time_ticks(relay) is None
