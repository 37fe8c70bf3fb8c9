"""scripts.installed: what is measured is what was made of these sources, or nothing is measured."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from scripts import installed
from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = "import sys; from scripts.installed import start; start('it'); import srd; print(srd.__file__)"


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a package of one file, and the rest of what is installed."""
    for package in installed.PACKAGES:
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("")
    (tmp_path / "scripts").mkdir()
    for name in installed.OTHERS:
        (tmp_path / name).write_text("")
    monkeypatch.setattr(installed, "ROOT", tmp_path)
    return tmp_path


def test_digest__changes_with_text_names_and_place(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {installed.digest()}
    file = elsewhere / "srd" / "more.py"
    file.write_text("x = 1\n")
    seen.add(installed.digest())
    file.write_text("x = 2\n")
    seen.add(installed.digest())
    file.rename(file.with_name("other.py"))
    seen.add(installed.digest())
    (elsewhere / "constraints.txt").write_text("numpy==2.4.6\n")
    seen.add(installed.digest())
    moved = elsewhere.with_name("moved")
    elsewhere.rename(moved)
    monkeypatch.setattr(installed, "ROOT", moved)
    seen.add(installed.digest())
    assert len(seen) == 6


def test_start__of_other_sources_says_what_to_do(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(elsewhere / ".venv"))
    monkeypatch.setattr(sys, "path", ["first", *sys.path])
    monkeypatch.setattr(installed, "STAMP", elsewhere / ".venv" / ".installed")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("PYTHONSAFEPATH", "")  # and back to what it was
    with pytest.raises(
        SystemExit, match=r"^it: .* holds other sources than these; run make setup \(or set PYTHONPATH="
    ):
        installed.start("it")


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [({"PYTHONPATH": str(ROOT)}, ROOT / "srd"), pytest.param({}, None, marks=pytest.mark.installed)],
)
def test_start__runs_what_is_installed_unless_told_to_run_the_sources(
    environment: dict[str, str], wanted: Path | None, tmp_path: Path
) -> None:
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {PROGRAM}"],
        cwd=tmp_path, env={**inherited, **environment}, capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout).parent == (wanted or Path(sysconfig.get_path("purelib"), "srd"))
