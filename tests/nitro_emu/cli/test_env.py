"""`nitro-card env`: which pyverbs a program gets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import nitro_emu
from nitro_emu.cli.env import PYVERBS_DIRECTORY
from tests.programs import run_to_end

Called = Callable[..., subprocess.CompletedProcess[str]]
SHOW = "import json, os, sys; print(json.dumps([os.environ['PYTHONPATH'], os.environ['NITRO_CARD_DIR'], sys.argv[1:]]))"
SOURCES = str(Path(nitro_emu.__file__).resolve().parent.parent)


def env(*arguments: str, path: str = SOURCES) -> subprocess.CompletedProcess[str]:
    return run_to_end(
        [sys.executable, "-m", "nitro_emu.cli", "env", *arguments], env={**os.environ, "PYTHONPATH": path}
    )


@pytest.fixture
def real_pyverbs(tmp_path: Path) -> Path:
    (tmp_path / "pyverbs").mkdir()
    (tmp_path / "pyverbs" / "__init__.py").write_text("")
    return tmp_path


def test_run_directory_without_a_card_is_named(tmp_path: Path) -> None:
    done = env("--run-dir", str(tmp_path / "none"), "--", sys.executable, "-c", "print(1)")
    assert (done.returncode, done.stdout) == (0, "1\n"), "the program decides whether that is an error"
    assert "none: no card runs there, so no device will be found; start one with nitro-card run, or name" in done.stderr


def test_program_gets_path_and_run_directory(tmp_path: Path) -> None:
    done = env("--run-dir", str(tmp_path), "--", sys.executable, "-c", SHOW, "--run-dir", "x")
    assert json.loads(done.stdout) == [f"{PYVERBS_DIRECTORY}:{SOURCES}", str(tmp_path), ["--run-dir", "x"]]


def test_exit_status_is_the_programs() -> None:
    assert env(sys.executable, "-c", "import sys; sys.exit(7)").returncode == 7


def test_nested_env_sees_no_real_pyverbs() -> None:
    assert env(sys.executable, "-m", "nitro_emu.cli", "env", sys.executable, "-c", "").returncode == 0


def test_real_pyverbs_is_not_hidden_unasked(real_pyverbs: Path) -> None:
    show = ("--", sys.executable, "-c", "import pyverbs; print(pyverbs.__file__)")
    refused = env(*show, path=f"{SOURCES}:{real_pyverbs}")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (
        f"nitro-card: a pyverbs is installed in {real_pyverbs}/pyverbs; to hide it from COMMAND, say --shadow\n"
    )
    hidden = env("--shadow", *show, path=f"{SOURCES}:{real_pyverbs}")
    assert Path(hidden.stdout.strip()).is_relative_to(PYVERBS_DIRECTORY)


def test_another_python_is_asked_for_its_own_pyverbs(real_pyverbs: Path, tmp_path: Path) -> None:
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={real_pyverbs} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    refused = env("--", str(python), "-c", "")
    assert f"a pyverbs is installed in {real_pyverbs}/pyverbs" in refused.stderr


def test_print_path(called: Called) -> None:
    assert called("env", "--print-path").stdout == f"{PYVERBS_DIRECTORY}\n"


@pytest.mark.parametrize(
    ("arguments", "status", "error"),
    [
        ([], 2, "no command; for example: nitro-card env -- python my_program.py"),
        (["--"], 2, "no command; for example"),
        (["--", "no-such-program"], 1, "no-such-program: no such command"),
    ],
)
def test_mistakes_are_one_line(called: Called, arguments: list[str], status: int, error: str) -> None:
    done = called("env", *arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert error in done.stderr
