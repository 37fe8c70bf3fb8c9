"""Directories for the commands: one to send from, one to receive into."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from netns.pytest import lab, pytest_configure  # noqa: F401 - pytest looks for them here
from srd.cli import main


@pytest.fixture
def output(tmp_path: Path) -> Path:
    made = tmp_path / "output"
    made.mkdir()
    return made


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    made = tmp_path / "inputs"
    made.mkdir()
    return made


@pytest.fixture
def called(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command line in this process, which is faster, for commands that end before any transfer."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["srd", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        status = caught.value.code
        assert isinstance(status, int)
        return subprocess.CompletedProcess(arguments, status, out, err)

    return call
