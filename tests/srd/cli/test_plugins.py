"""Commands of `srd` that other packages have."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import click
import pytest
from click.testing import CliRunner

import srd.cli as plugins
from srd.cli import cli


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    """What is installed."""
    points: list[EntryPoint] = []

    def entry_points(*, group: str, name: str | None = None) -> list[EntryPoint]:
        assert group == plugins.GROUP
        return [point for point in points if name in {None, point.name}]

    monkeypatch.setattr(plugins, "entry_points", entry_points)
    return points


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, plugins.GROUP)


def test_plugin__is_a_command(found: list[EntryPoint]) -> None:
    found.append(point("other", "srd.cli.security:keygen"))
    assert "other" in cli.list_commands(click.Context(cli))
    assert CliRunner().invoke(cli, ["other", "--help"]).output.startswith("Usage: srd other")


def test_plugin__own_commands_go_first(found: list[EntryPoint]) -> None:
    found.append(point("send", "srd.cli.security:keygen"))
    command = cli.get_command(click.Context(cli), "send")
    assert command is not None
    assert command.name == "send"


def test_plugin__a_missing_library_is_named(found: list[EntryPoint]) -> None:
    found.append(point("other", "no_such_library.module:command"))
    result = CliRunner().invoke(cli, ["other", "--option", "value"])
    assert result.exit_code == 1
    assert (
        result.output
        == "srd: other: needs no_such_library; install it, in the checkout: pip install '.[cli,lab,report,tunnel]'\n"
    )
    assert CliRunner().invoke(cli, ["--help"]).exit_code == 0


def test_plugin__none_of_that_name(found: list[EntryPoint]) -> None:
    assert not found
    assert CliRunner().invoke(cli, ["other"]).exit_code == 2
