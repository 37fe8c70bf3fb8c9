"""`nitro-card` itself: usage, and how errors read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from nitro_emu.cli import COMMANDS, cli
from tests.programs import run_to_end

Called = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "nitro-card: no command given; nitro-card --help lists them"),
        (["fly"], "nitro-card: No such command 'fly'."),
        (["status", "--fast"], "nitro-card: No such option '--fast'."),
        (["run"], "nitro-card: Missing argument 'CONFIG'."),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(called: Called, arguments: list[str], error: str) -> None:
    done = called(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", error + "\n")


def test_wrong_settings_are_one_line_and_status_2(called: Called, tmp_path: Path) -> None:
    (tmp_path / "card.yaml").write_text("vfs: []")
    done = called("run", str(tmp_path / "card.yaml"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"nitro-card: {tmp_path}/card.yaml: vfs: []")


def test_help_lists_every_command() -> None:
    module = [sys.executable, "-m", "nitro_emu.cli", "--help"]
    done = run_to_end(module, check=True)
    for name in COMMANDS:
        assert f"\n  {name} " in done.stdout


def test_every_command_has_help() -> None:
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        assert command.get_short_help_str()
