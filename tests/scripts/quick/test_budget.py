"""scripts.quick.budget: pytest starts no test after the time, and the tally tells what ran from what did not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.quick.budget import STOP_AT, TALLY
from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
TESTS = """
import os
import pytest
from scripts.quick.budget import STOP_AT

@pytest.fixture(scope="module")
def opened(request):
    yield
    open(f"closed-{request.config.workerinput['workerid']}", "x").close()

def test_in_time(opened):
    pass

def test_fails(opened):
    assert False

@pytest.mark.skip
def test_skipped():
    pass

@pytest.mark.xfail
def test_root():
    assert False

@pytest.mark.parametrize("number", range(5))
def test_more(opened, number):
    LAST
"""


def tallied(directory: Path, last: str, *, stop_at: float) -> tuple[int, dict[str, Any]]:
    """The exit status and the tally of a run in which each of the last five tests does `last`."""
    (directory / "tests" / "a" / "b" / "c").mkdir(parents=True)
    (directory / "tests" / "a" / "b" / "c" / "test_it.py").write_text(TESTS.replace("LAST", last))
    tally = directory / "tally.json"
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-n", "1", "--maxschedchunk", "1", "-k", "not root", "--rootdir", ".",
            "-p", "no:cacheprovider", "-p", "scripts.quick.budget", "-o", "addopts=", "tests",
        ],
        cwd=directory, capture_output=True, text=True, check=False, timeout=PATIENCE_S,
        env={**os.environ, "PYTHONPATH": str(ROOT), STOP_AT: str(stop_at), TALLY: str(tally)},
    )  # fmt: skip
    assert tally.exists(), done.stdout + done.stderr
    return done.returncode, json.loads(tally.read_text())


def test_budget__with_time_everything_runs(tmp_path: Path) -> None:
    assert tallied(tmp_path, "pass", stop_at=1e12) == (1, {"run": 8, "excluded": 1, "late": {}})
    assert (tmp_path / "closed-gw0").exists()


def test_budget__when_the_time_has_passed_nothing_starts_and_fixtures_end(tmp_path: Path) -> None:
    expire = "os.environ[STOP_AT] = '0'"
    assert tallied(tmp_path, expire, stop_at=1e12) == (1, {"run": 4, "excluded": 1, "late": {"tests/a/b": 4}})
    assert (tmp_path / "closed-gw0").exists()


def test_budget__without_time_nothing_ran_and_nothing_failed(tmp_path: Path) -> None:
    status, tally = tallied(tmp_path, "pass", stop_at=0)
    assert tally == {"run": 0, "excluded": 1, "late": {"tests/a/b": 8}}
    assert status == pytest.ExitCode.OK
