"""scripts/watched.py: a command of scripts/setup, how far it is, and the time left."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.terminal import Terminal

ROOT = Path(__file__).resolve().parents[2]
BUILD = """
import pathlib, sys, time
print("a warning of a tool")
for what in ("compiling to C: 120 modules", "compiling C: 40 of 160 files"):
    print("setup: " + what, file=sys.stderr, flush=True)
    while not pathlib.Path(what[-5:]).exists():
        time.sleep(0.01)
"""


def watched(folder: Path, parts: str, *command: str, stderr: int) -> subprocess.Popen[str]:
    """Start it as scripts/setup does: by a Python without libraries."""
    argv = [sys.executable, "-S", str(ROOT / "scripts" / "watched.py"), "build/log", parts, *command]
    return subprocess.Popen(argv, cwd=folder, stdout=subprocess.PIPE, stderr=stderr, text=True)


def test_terminal__parts_files_and_the_time_left(tmp_path: Path) -> None:
    past = tmp_path / "build" / "setup-seconds.json"
    past.parent.mkdir()
    past.write_text(json.dumps({"compiling to C": 600, "compiling C": 900}))
    with (
        Terminal() as terminal,
        watched(tmp_path, "compiling to C|compiling C", sys.executable, "-c", BUILD, stderr=terminal.slave) as run,
    ):
        terminal.wait_for("setup: 24:59 left: compiling to C: 120 modules")
        (tmp_path / "dules").touch()
        terminal.wait_for(": compiling C: 40 of 160 files")
        (tmp_path / "files").touch()
        assert run.communicate(timeout=PATIENCE_S)[0] == ""
        shown = terminal.text
    assert run.returncode == 0
    assert "a warning" not in shown
    assert shown.endswith("\r\x1b[K")
    assert all(0 < took_s < PATIENCE_S for took_s in json.loads(past.read_text()).values())


def test_elsewhere__nothing_where_it_is_quick(tmp_path: Path) -> None:
    with watched(tmp_path, "packages", "echo", "a warning of pip", stderr=subprocess.PIPE) as run:
        assert run.communicate(timeout=PATIENCE_S) == ("", "")
    assert (tmp_path / "build" / "log").read_text() == "a warning of pip\n"


def test_failure__says_why_and_keeps_no_time(tmp_path: Path) -> None:
    with watched(tmp_path, "packages", "sh", "-c", "echo no space; exit 3", stderr=subprocess.PIPE) as run:
        assert run.communicate(timeout=PATIENCE_S) == ("", "no space\n")
    assert run.returncode == 3
    assert not (tmp_path / "build" / "setup-seconds.json").exists()


@pytest.mark.parametrize(("parts", "is_kept"), [("compiling to C|compiling C", False), ("compiling to C", True)])
def test_past__only_of_all_parts(tmp_path: Path, parts: str, is_kept: bool) -> None:  # noqa: FBT001 - of pytest
    with watched(tmp_path, parts, "true", stderr=subprocess.PIPE) as run:
        run.communicate(timeout=PATIENCE_S)
    assert (tmp_path / "build" / "setup-seconds.json").exists() == is_kept
