"""The `srd` command: `srd recv`, `send`, `perf`, `keygen`, `trace`, `metrics`, `top`, and those of other packages.

Exit status 0: everything was done and verified; 1: it failed; 2: wrong usage. Errors are one line on stderr.
A command's module is imported when the command is used, as what the others need takes a tenth of the start.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Final

import click

import netns.base.program
from devmem import DevmemError
from srd.errors import SrdError
from srd.secure.packets import library

GROUP: Final = "srd.commands"


class SrdProgram(netns.base.program.Program):
    """A program with the commands of packages that `srd` does not import beside its own.

    [project.entry-points."srd.commands"]
    compare = "package.module:click_command"
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted({*super().list_commands(ctx), *(found.name for found in entry_points(group=GROUP))})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, or None if there is none of that name."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        return next((_loaded(found) for found in entry_points(group=GROUP, name=cmd_name)), None)


def _loaded(found: EntryPoint) -> click.Command:
    """Return the command; one that says so if a library that it needs is not installed."""
    try:
        command: click.Command = found.load()
    except ModuleNotFoundError as error:
        lacks = f"needs {error.name}; install it, in the checkout: pip install '.[cli,lab,report,tunnel]'"
        return _lacking(found.name, lacks)
    return netns.base.program.with_legend(command)


def _lacking(name: str, lacks: str) -> click.Command:
    def refuse(rest: tuple[str, ...]) -> None:  # noqa: ARG001 - click's
        raise click.ClickException(f"{name}: {lacks}")

    everything = click.Argument(["rest"], nargs=-1, type=click.UNPROCESSED)
    settings = {"ignore_unknown_options": True}
    return click.Command(name, params=[everything], callback=refuse, context_settings=settings, short_help=lacks)


COMMANDS: Final = {
    "keygen": "srd.cli.security:keygen",
    "metrics": "srd.cli.metrics:metrics",
    "perf": "srd.cli.perf:perf",
    "recv": "srd.cli.recv:recv",
    "send": "srd.cli.send:send",
    "top": "srd.cli.top:top",
    "trace": "srd.cli.trace:trace",
}
"""Module and object of each command of this package."""


@click.group("srd", cls=SrdProgram, commands_at=COMMANDS, statuses={SrdError: 1, DevmemError: 1})
@netns.base.program.version_option("srd", more=lambda: f"; encrypts {library()}")
def cli() -> None:
    """Send and receive files, and measure, over SRD, a reliable multipath transport with out-of-order delivery."""
