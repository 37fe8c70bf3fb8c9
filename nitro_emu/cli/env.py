"""`nitro-card env`: run a program that finds a package named pyverbs, and the card."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import click

from netns.base.program import inner_command
from nitro_emu.cli.options import RUN_DIR_VARIABLE, run_dir_option
from nitro_emu.errors import CardError
from nitro_emu.run_directory import remedy

PYVERBS_DIRECTORY: Final = Path(__file__).resolve().parent.parent / "efa/pyverbs"
"""Holds the package pyverbs; it is on no path by itself, so that it never hides rdma-core's own."""

_PYTHON: Final = re.compile(r"(python|pypy)[\d.]*")
_FIND_PYVERBS: Final = (
    "import importlib.util; found = importlib.util.find_spec('pyverbs'); print((found and found.origin) or '')"
)
FIND_TIMEOUT_S: Final = 20.0


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@run_dir_option
@click.option("--print-path", is_flag=True, help="Print the directory to put on PYTHONPATH, and run nothing.")
@click.option(
    "--shadow", is_flag=True, help="Run it even if rdma-core's own pyverbs is installed, which is hidden then."
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def env(*, run_dir: Path, print_path: bool, shadow: bool, command: tuple[str, ...]) -> None:
    """Run COMMAND with this project's pyverbs on its PYTHONPATH, on the devices of the card.

    The exit status is that of COMMAND. For example: nitro-card env -- python my_program.py
    """
    if print_path:
        click.echo(PYVERBS_DIRECTORY)
        return
    arguments = inner_command(command, example="nitro-card env -- python my_program.py")
    if (program := shutil.which(arguments[0])) is None:
        raise CardError(f"{arguments[0]}: no such command")
    if not shadow and (real := _real_pyverbs(program)):
        raise CardError(f"a pyverbs is installed in {real}; to hide it from COMMAND, say --shadow")
    path = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join((str(PYVERBS_DIRECTORY), *([path] if path else ())))
    os.environ[RUN_DIR_VARIABLE] = str(run_dir)
    if not run_dir.is_dir():
        what_to_do = remedy(run_dir, option="--run-dir")
        click.echo(f"nitro-card: {run_dir}: no card runs there, so no device will be found; {what_to_do}", err=True)
    sys.stdout.flush()
    try:
        os.execv(program, arguments)  # noqa: S606 - no shell is involved
    except OSError as error:
        raise CardError(f"{program}: cannot be run: {error.strerror}") from error


def _real_pyverbs(program: str) -> str:
    """Return where a pyverbs other than this project's is that the program would import; empty if there is none.

    A program that is a Python is asked itself, as it may have other packages; for any other, this Python stands in.
    """
    if _PYTHON.fullmatch(Path(program).name) and not _is_this_python(program):
        origin = _asked(program)
    else:
        found = importlib.util.find_spec("pyverbs")
        origin = (found.origin or "") if found else ""
    if not origin or Path(origin).resolve().is_relative_to(PYVERBS_DIRECTORY):
        return ""
    return str(Path(origin).parent)


def _is_this_python(program: str) -> bool:
    return Path(program).absolute() == Path(sys.executable).absolute()


def _asked(python: str) -> str:
    try:
        found = subprocess.run(
            [python, "-c", _FIND_PYVERBS], capture_output=True, text=True, timeout=FIND_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):  # it will tell its user itself
        return ""
    return found.stdout.strip()
