"""The manual pages and shell completions: current, well-formed, and of use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from scripts import manuals

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted((manuals.OUT / "man").glob("*.1"))


def test_files__are_current() -> None:
    """In a process of its own: click keeps what other tests have made of a command."""
    done = subprocess.run(
        [sys.executable, "-m", "scripts.manuals", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_stale__names_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manuals, "ROOT", tmp_path)
    monkeypatch.setattr(manuals, "OUT", tmp_path / "packaging")
    monkeypatch.setattr(manuals, "files", lambda: {tmp_path / "packaging" / "man" / "a.1": "a", tmp_path / "b": "b"})
    (tmp_path / "packaging" / "man").mkdir(parents=True)
    (tmp_path / "packaging" / "man" / "old.1").touch()
    assert manuals.main(["--check"]) == 1
    assert manuals.stale(manuals.files()) == ["b", "packaging/man/a.1", "packaging/man/old.1"]
    assert manuals.main([]) == 0
    assert (tmp_path / "packaging" / "man" / "a.1").read_text() == "a"
    assert not (tmp_path / "packaging" / "man" / "old.1").exists()


def test_pages__of_every_command() -> None:
    names = {page.stem for page in PAGES}
    assert {"srd", "srd-recv", "srd-send", "srd-top", "srd-perf-client", "srd-lab", "srd-lab-up"} <= names


def test_pages__are_without_warnings() -> None:
    """By groff (Debian: groff-base), which `man` uses."""
    for page in PAGES:
        done = subprocess.run(
            ["groff", "-man", "-ww", "-Tutf8", "-P-cbou", str(page)], capture_output=True, text=True, check=True
        )
        assert done.stderr == "", page
        assert "OPTIONS" in done.stdout
        assert "EXIT STATUS" in done.stdout


def test_roff__escapes() -> None:
    assert manuals.roff(".a -b 'c' `d` \\e\n'f") == "\\&.a \\-b \\(aqc\\(aq \\(gad\\(ga \\ee\n\\(aqf"


def test_paragraphs__keep_the_lines_of_an_example() -> None:
    made = list(manuals.paragraphs("One\ntwo.\n\n\b\n  srd x\n  srd y\n"))
    assert made == [".PP\nOne two.\n", ".PP\n.nf\n  srd x\n  srd y\n.fi\n"]


@pytest.mark.parametrize("program", manuals.PROGRAMS)
def test_completion__bash_completes(program: str) -> None:
    """What bash's script runs when the user presses tab, and that bash takes the script."""
    script = manuals.OUT / "completion" / "bash" / program
    found = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")
    module = {"srd": "srd", "srd-lab": "netns"}[program]
    variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
    code = f"import sys; sys.argv = [{program!r}]; from {module}.command import main; main()"
    environment = {**os.environ, "COMP_WORDS": f"{program} to", "COMP_CWORD": "1", variable: "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "plain,top" in done.stdout.splitlines(), done


def test_completion__of_each_shell() -> None:
    for shell, name in manuals.COMPLETIONS.items():
        for program in manuals.PROGRAMS:
            text = (manuals.OUT / "completion" / shell / name.format(program=program)).read_text()
            assert program in text
            assert text.endswith("\n")
    assert isinstance(manuals.PROGRAMS["srd"], click.Group)
