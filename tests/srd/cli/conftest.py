"""The commands in this process, and labs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from srd.cli import cli
from tests.srd.cli.processes import run_here


@pytest.fixture
def called(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command line in this process, which is faster, for commands that end before any transfer."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_here(cli, ["srd", *arguments], capsys=capsys, patch=monkeypatch)

    return call
