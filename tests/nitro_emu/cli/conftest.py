"""`nitro-card` in this process, which is faster, and a card without devices to ask."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nitro_emu.cli import cli
from tests.nitro_emu.processes import card_file, fake_card
from tests.srd.cli.processes import run_here

Called = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def called(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Called:
    """Run the command line, for commands that end by themselves."""
    monkeypatch.delenv("NITRO_CARD_DIR", raising=False)

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_here(cli, ["nitro-card", *arguments], capsys=capsys, patch=monkeypatch)

    return call


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The run directory of a fake card with two VFs."""
    directory = tmp_path_factory.mktemp("card")
    vfs = ("name: efa_0, address: 127.0.0.1", "name: efa_1, address: 127.0.0.2")
    with fake_card(card_file(directory, vfs=vfs)) as card:
        card.stdout.next()
        yield directory / "run"
