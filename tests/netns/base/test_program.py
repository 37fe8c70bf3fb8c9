"""netns.base.program: how a program ends, and commands that are imported when they are used."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable

import click
import pytest

from netns.base.program import Program, ProgramCommand


class OwnError(Exception):
    """An error of a package."""


class InputError(OwnError):
    """A kind of it."""


def raising(error: BaseException) -> Callable[[], None]:
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (OwnError("went\nwrong"), 1, "went\\nwrong"),
        (InputError("the file"), 2, "the file"),
        (click.UsageError("no such option"), 2, "no such option"),
        (click.ClickException("cannot"), 1, "cannot"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (SystemExit(143), 143, "interrupted"),
        (BrokenPipeError(), 1, "the output was closed by its reader"),
        (FileNotFoundError(errno.ENOENT, "No such file", "/x"), 1, "/x: No such file"),
    ],
)
def test_errors_are_one_line_and_a_status(
    error: BaseException, status: int, line: str, capfd: pytest.CaptureFixture[str]
) -> None:
    program = ProgramCommand("prog", callback=raising(error), statuses={InputError: 2, OwnError: 1})
    with pytest.raises(SystemExit) as caught:
        program([])
    assert caught.value.code == status
    assert capfd.readouterr() == ("", f"prog: {line}\n")


def test_a_defect_has_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        ProgramCommand("prog", callback=raising(ZeroDivisionError()), statuses={OwnError: 1})([])


@pytest.mark.parametrize(("returned", "status"), [(None, 0), (3, 3), ("text", 0)])
def test_the_status_is_what_the_command_returns(returned: object, status: int) -> None:
    with pytest.raises(SystemExit) as caught:
        ProgramCommand("prog", callback=lambda: returned, statuses={OwnError: 1})([])
    assert caught.value.code == status


def test_without_a_command_it_says_what_lists_them(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        Program("prog", statuses={OwnError: 1})([])
    assert caught.value.code == 2
    assert capfd.readouterr().err == "prog: no command given; prog --help lists them\n"


def test_commands_are_imported_when_they_are_used(capfd: pytest.CaptureFixture[str]) -> None:
    sys.modules.pop("netns.cli.uml", None)
    program = Program("prog", commands_at={"b": "netns.cli.rootless:uml_command"}, statuses={OwnError: 1})
    program.command("a")(lambda: None)
    context = click.Context(program)
    assert program.list_commands(context) == ["a", "b"]
    assert "netns.cli.uml" not in sys.modules
    found = program.get_command(context, "b")
    assert found is not None
    assert found.name == "uml"
    assert program.get_command(context, "c") is None
    assert capfd.readouterr() == ("", "")
