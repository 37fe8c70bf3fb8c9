"""make quick in a small checkout of its own: what is checked, what is said, and the exit status."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.quick.__main__ import summary
from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("srd", "devmem", "nitro_emu", "netns", "examples", "scripts", "tests")
TEST = '''"""A test."""

import pytest

from srd.one import double


def test_double() -> None:
    """Twice two."""
    assert double(2) == 4


@pytest.mark.root
def test_root() -> None:
    """Fails."""
    raise AssertionError
'''


def quick(directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it with what is in `directory`."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH" and "GIT_" not in name}
    return subprocess.run(
        [sys.executable, "-m", "scripts.quick"], cwd=directory, capture_output=True, text=True, check=False,
        env={**inherited, "PYTHONPATH": str(directory), **environment}, timeout=PATIENCE_S * 5,
    )  # fmt: skip


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    """The project's settings and this program, a module, its test and another one; one commit of the main branch."""
    for name in FOLDERS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text('"""A package."""\n')
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "scripts" / "quick", tmp_path / "scripts" / "quick")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / ".gitignore").write_text(".venv\n.quick-*/\n__pycache__/\n")
    (tmp_path / "srd" / "one.py").write_text(
        '"""One."""\n\n\ndef double(x: int) -> int:\n    """Return twice x."""\n    return 2 * x\n'
    )
    (tmp_path / "tests" / "srd").mkdir()
    (tmp_path / "tests" / "srd" / "test_one.py").write_text(TEST)
    (tmp_path / "tests" / "test_architecture.py").write_text(
        '"""Nothing."""\n\n\ndef test_it() -> None:\n    """Hold."""\n'
    )
    for arguments in (
        ("init", "--quiet", "--initial-branch=main"),
        ("add", "--all"),
        ("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "--quiet", "--message", "all"),
    ):
        subprocess.run(["git", "-C", tmp_path, *arguments], check=True, capture_output=True)
    yield tmp_path
    status = tmp_path / f".quick-{os.getuid()}" / "dmypy.json"
    subprocess.run([sys.executable, "-m", "mypy.dmypy", "--status-file", status, "kill"], check=False)


@pytest.mark.long
def test_quick(checkout: Path) -> None:
    done = quick(checkout)
    assert done.returncode == 0, done.stdout
    *lines, last = done.stdout.splitlines()
    assert {re.sub(r"[\d.]+ s$", "", line) for line in lines} == {
        "format: ok, ",
        "lint: ok, ",
        "tests: ok, ",
        "types: ok, ",
    }
    assert re.fullmatch(r"quick: \d+ s: format, lint, types, 1 tests of 0 changed files", last)

    module = checkout / "srd" / "one.py"
    module.write_text(module.read_text().replace("2 * x", "f'{x}'"))
    done = quick(checkout)
    assert done.returncode == 1
    assert "srd/one.py:6: error: Incompatible return value type" in done.stdout
    assert "FAILED tests/srd/test_one.py::test_double" in done.stdout
    last = done.stdout.splitlines()[-1]
    counted, failed, left_out = last.split("; ")
    assert counted.endswith("format, lint, types, 2 tests of 1 changed files")
    assert set(failed.removeprefix("failed: ").split(", ")) == {"format", "types", "tests"}
    assert left_out == "left to make test: 1 that need root, a build or longer"


def test_quick__without_a_base_bad_flow(checkout: Path) -> None:
    done = quick(checkout, BASE="nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"quick: git cannot say what changed: .*nowhere.*\n", done.stderr)


def test_summary__says_what_did_not_run() -> None:
    counts = {"run": 214, "excluded": 3, "late": {"tests/srd/proto": 40, "tests/srd": 2}}
    assert summary(counts, seconds=29.4, failed=[], files=9) == (
        "quick: 29 s: format, lint, types, 214 tests of 9 changed files; no time left for 42 of tests/srd, "
        "tests/srd/proto; left to make test: 3 that need root, a build or longer"
    )
