"""The manual pages and shell completions: current, well-formed, and of use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import manuals

ROOT = Path(__file__).resolve().parents[3]


def write(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: click keeps what other tests have made of a command."""
    command = [sys.executable, "-m", "scripts.manuals", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the files have been written."""
    made = tmp_path_factory.mktemp("prefix")
    done = write(str(made))
    assert (done.returncode, done.stderr) == (0, "")
    assert str(made / manuals.MAN) in done.stdout
    return made


def test_main__bad_input_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "share").touch()
    done = write(str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"scripts/manuals.py: {tmp_path}/share")
    assert done.stderr.endswith("name another PREFIX\n")
    for wrong in (("--check",), ("a", "b")):
        assert write(*wrong).returncode == 2


def test_pages__of_every_command(prefix: Path) -> None:
    names = {page.stem for page in (prefix / manuals.MAN).glob("*.1")}
    assert {"srd", "srd-recv", "srd-send", "srd-top", "srd-perf-client", "srd-lab", "srd-lab-up"} <= names


def test_pages__are_without_warnings(prefix: Path) -> None:
    """By groff (Debian: groff-base), which `man` uses."""
    for page in sorted((prefix / manuals.MAN).glob("*.1")):
        done = subprocess.run(
            ["groff", "-man", "-ww", "-Tutf8", "-P-cbou", str(page)], capture_output=True, text=True, check=True
        )
        assert done.stderr == "", page
        assert "OPTIONS" in done.stdout
        assert "EXIT STATUS" in done.stdout
        assert "128 and a" in " ".join(done.stdout.split())


def test_roff__escapes() -> None:
    assert manuals.roff(".a -b 'c' `d` \\e\n'f") == "\\&.a \\-b \\(aqc\\(aq \\(gad\\(ga \\ee\n\\(aqf"


def test_paragraphs__keep_the_lines_of_an_example() -> None:
    made = list(manuals.paragraphs("One\ntwo.\n\n\b\n  srd x\n  srd y\n"))
    assert made == [".PP\nOne two.\n", ".PP\n.nf\n  srd x\n  srd y\n.fi\n"]


@pytest.mark.parametrize("program", manuals.PROGRAMS)
def test_completion__bash_completes(program: str, prefix: Path) -> None:
    """What bash's script runs when the user presses tab, and that bash takes the script."""
    script = prefix / manuals.COMPLETIONS["bash"].format(program=program)
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


def test_completion__of_each_shell(prefix: Path) -> None:
    for path in manuals.COMPLETIONS.values():
        for program in manuals.PROGRAMS:
            text = (prefix / path.format(program=program)).read_text()
            assert program in text
            assert text.endswith("\n")
