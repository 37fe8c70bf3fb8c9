"""setup.py: what the compiled modules are made of, and so what makes a new build."""

from __future__ import annotations

import importlib.util
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from types import ModuleType

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parent.parent
COMPILED = Path("srd", "proto", "base", "seqset.py")
READ = Path("srd", "config.py")
"""Imported by compiled modules, and not compiled."""
APART = Path("netns", "cli", "show.py")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages."""
    made = tmp_path_factory.mktemp("tree")
    for name in ("srd", "devmem", "nitro_emu", "netns"):
        shutil.copytree(ROOT / name, made / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "constraints.txt"):
        shutil.copy(ROOT / name, made)
    return made


@pytest.fixture(scope="module")
def setup(tree: Path) -> Iterator[ModuleType]:
    """The module, in the copy."""
    spec = importlib.util.spec_from_file_location("project_setup", tree / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with chdir(tree):
        yield module


@pytest.fixture(scope="module")
def before(setup: ModuleType) -> str:
    found: str = setup.digest()
    return found


@pytest.mark.parametrize(
    ("path", "added", "compiles_again"),
    [
        (APART, "ADDED = 1\n", False),
        (READ, "# a comment\n", False),
        (READ, "ADDED: int = 1\n", True),
        (COMPILED, "# a comment\n", True),
    ],
)
def test_digest__changes_with_what_mypyc_reads(
    setup: ModuleType,
    before: str,
    path: Path,
    added: str,
    compiles_again: bool,  # noqa: FBT001 - a parameter of pytest
) -> None:
    text = path.read_text()
    path.write_text(text + added)
    try:
        assert (setup.digest() != before) == compiles_again
    finally:
        path.write_text(text)


def test_digest__without_docstrings_of_what_is_not_compiled(setup: ModuleType, before: str) -> None:
    text = READ.read_text()
    assert text.startswith('"""')
    READ.write_text(text.replace('"""', '"""Other words. ', 1))
    try:
        assert setup.digest() == before
    finally:
        READ.write_text(text)


def test_compiler_works__finds_out(setup: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for compiler in ("false", "/no/such/compiler"):
        monkeypatch.setenv("CC", compiler)
        assert not setup.compiler_works()


def test_extensions__without_a_compiler_the_terminal_is_told_what_it_costs() -> None:
    """pip keeps what a build prints to itself: both streams of this one go nowhere."""
    master, slave = pty.openpty()
    program = f"import runpy; runpy.run_path({str(ROOT / 'setup.py')!r})['extensions']()"
    command = ["setsid", "--ctty", "--wait", sys.executable, "-c", program]
    try:
        done = subprocess.run(
            command,
            stdin=slave,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "CC": "false"},
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0
        told = os.read(master, 4096).decode()
    finally:
        os.close(slave)
        os.close(master)
    assert told.startswith("open-srd: no C compiler")
    assert "1.2 to 2 times as long" in told
