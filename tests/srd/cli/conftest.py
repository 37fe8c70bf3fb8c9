"""The commands in this process, and labs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from srd.cli import cli
from tests.srd.cli.processes import Called, run_here
from tests.srd.file_transfer.ends import file_of


@pytest.fixture
def file(inputs: Path) -> Path:
    """A file to send."""
    return file_of(inputs, 3_000_000)


@pytest.fixture
def called(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Called:
    """Run the command line in this process, which is faster, for commands that end before any transfer."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_here(cli, ["srd", *arguments], capsys=capsys, patch=monkeypatch)

    return call
