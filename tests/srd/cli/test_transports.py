"""`--card`: what drives cards is found by its entry point, and a command line is checked before it is opened."""

from __future__ import annotations

import subprocess
import tomllib
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from srd.cli import transports
from tests.srd.cli.processes import assert_fails

ROOT = Path(__file__).resolve().parent.parent.parent.parent
TARGET = "127.0.0.1:19870/1/00000000"
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def file(inputs: Path) -> Path:
    path = inputs / "a.bin"
    path.write_bytes(b"a")
    return path


def register(monkeypatch: pytest.MonkeyPatch, *values: str) -> None:
    """Let these be the only entry points of the group."""
    found = EntryPoints(EntryPoint(transports.CARD, value, transports.GROUP) for value in values)
    monkeypatch.setattr(transports, "entry_points", found.select)


def test_card__without_an_entry_point_bad_flow(
    file: Path, output: Path, called: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch)
    for arguments in (["send", str(file), TARGET], ["recv", "--output", str(output)]):
        result = called(*arguments, "--card", "efa_0")
        assert_fails(result, status=2, error="--card: nothing that is installed here drives cards; in a checkout, run")


@pytest.mark.parametrize("value", ["no_such_package:Card", "srd:NoSuchName"])
def test_card__an_entry_point_that_cannot_be_loaded_bad_flow(
    file: Path, called: Command, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    register(monkeypatch, value)
    assert_fails(called("send", str(file), TARGET, "--card", "efa_0"), status=2, error=f"{value} cannot be loaded")


@pytest.mark.installed
def test_card__the_project_registers_its_own() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    value = project["entry-points"][transports.GROUP][transports.CARD]
    loaded = EntryPoint(transports.CARD, value, transports.GROUP).load()
    loaded.check_target(TARGET)
    assert transports.card_transport() is loaded, "make setup writes the metadata that this needs"


@pytest.mark.parametrize(
    "options",
    [
        ["--paths", "4"],
        ["--devmem"],
        ["--plain"],
        ["--psk-file", "x"],
        ["--cert", "x"],
        ["--ca", "x"],
        ["--known-hosts", "x"],
        ["--busy-poll"],
        ["--trace", "x"],
    ],
    ids=str,
)
def test_send__options_of_an_endpoint_bad_flow(file: Path, called: Command, options: list[str]) -> None:
    result = called("send", "--card", "efa_0", str(file), TARGET, *options)
    assert_fails(result, status=2, error=f"{options[0]}: has no meaning with --card")


@pytest.mark.parametrize(
    "options",
    [
        ["--devmem", "64M"],
        ["--plain"],
        ["--psk-file", "x"],
        ["--cert", "x"],
        ["--ca", "x"],
        ["--authorized-keys", "x"],
        ["--busy-poll"],
        ["--trace", "x"],
    ],
    ids=str,
)
def test_recv__options_of_an_endpoint_bad_flow(output: Path, called: Command, options: list[str]) -> None:
    result = called("recv", "--card", "efa_0", "--output", str(output), *options)
    assert_fails(result, status=2, error=f"{options[0]}: has no meaning with --card")


def test_recv__both_or_neither_of_listen_and_card_bad_flow(output: Path, called: Command) -> None:
    both = called("recv", "--card", "efa_0", "--listen", "127.0.0.1:0", "--output", str(output))
    assert_fails(both, status=2, error="give --listen HOST:PORT or --card DEVICE, one of them")
    assert_fails(called("recv", "--output", str(output)), status=2, error="give --listen HOST:PORT or --card DEVICE")


def test_send__help_says_what_a_target_is(called: Command) -> None:
    for command in ("send", "recv"):
        result = called(command, "--help")
        assert result.returncode == 0
        assert "HOST:PORT/QPN/QKEY" in result.stdout
