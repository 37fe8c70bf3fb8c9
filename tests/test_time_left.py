"""tests.time_left: the line of a run of tests, with workers and without, on a terminal and elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.terminal import Terminal

ROOT = Path(__file__).resolve().parent.parent
WAIT = "import pathlib, time\ndef wait(name):\n    while not pathlib.Path(name).exists(): time.sleep(0.01)\n"
FILES = {
    "test_first.py": "def test_good(): pass\ndef test_bad(): assert 0\n",
    "test_last.py": f"{WAIT}def test_waits(): wait('go')\ndef test_skipped(): __import__('pytest').skip('x')\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Tests of which one waits for the file `go`; those before it took two seconds each the last time."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    past = tmp_path / ".pytest_cache" / "v" / "time_left" / "seconds"
    past.parent.mkdir(parents=True)
    past.write_text('{"test_first.py": 2, "test_last.py": 600}')
    return tmp_path


def started(folder: Path, *options: str, stderr: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.time_left", *options]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True)


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["here", "worker"])
def test_terminal__tests_done_time_left_and_what_failed(folder: Path, workers: tuple[str, ...]) -> None:
    with Terminal() as terminal, started(folder, *workers, stderr=terminal.slave) as run:
        try:
            terminal.wait_for("tests: 0 of 4, 20:04 left")
            terminal.wait_for("failed: test_first.py::test_bad\r\n")
            terminal.wait_for("tests: 2 of 4, 1")  # 19:59, or what a machine that is slow has left
            (folder / "go").touch()
            out, _ = run.communicate(timeout=PATIENCE_S)
        finally:
            run.kill()
        shown = terminal.text
    assert run.returncode == 1
    assert "FAILED test_first.py::test_bad" in out
    assert "1 failed, 2 passed, 1 skipped" in out
    assert ".F" not in out
    assert shown.endswith("\r\x1b[K")


def test_elsewhere__no_dots_and_no_escapes(folder: Path) -> None:
    (folder / "go").touch()
    with started(folder, "-n", "1", stderr=subprocess.PIPE) as run:
        out, err = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 1
    assert err == "failed: test_first.py::test_bad\n"
    assert ".F" not in out
    assert "\x1b" not in out
