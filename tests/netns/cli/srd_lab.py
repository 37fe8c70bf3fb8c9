"""Runs `srd-lab`: in this process, as most tests need no process of its own, or as a process."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from click.testing import CliRunner

from netns.cli import main
from tests.programs import run_to_end


@dataclass(frozen=True, slots=True)
class Done:
    """Exit status and output of a command that has ended."""

    returncode: int
    stdout: str
    stderr: str


def srd_lab(*arguments: object) -> Done:
    """Run a command in this process. An exception that the command does not report itself is raised here."""
    result = CliRunner().invoke(main, [*map(str, arguments)], prog_name="srd-lab")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Done(result.exit_code, result.stdout, result.stderr)


def srd_lab_process(*arguments: object) -> Done:
    """Run a command as a process."""
    command = [sys.executable, "-m", "netns", *map(str, arguments)]
    done = run_to_end(command)
    return Done(done.returncode, done.stdout, done.stderr)


def one_line(done: Done, *, status: int) -> str:
    """Return the error of a failed command: one line with the name of the program."""
    assert done.returncode == status, done
    assert done.stdout == ""
    line, *rest = done.stderr.splitlines()
    assert rest == []
    assert line.startswith("srd-lab: ")
    return line.removeprefix("srd-lab: ")
