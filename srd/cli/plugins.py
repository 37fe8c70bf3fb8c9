"""Commands of `srd` from packages that `srd` does not import, found by their entry points and loaded when used.

[project.entry-points."srd.commands"]
compare = "package.module:click_command"
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Final

import click

import netns.base.program

GROUP: Final = "srd.commands"


class Program(netns.base.program.Program):
    """A program with the commands of entry points beside its own."""

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
        lacks = f"needs {error.name}; install it: pip install 'open-srd[cli,lab,report,tunnel]'"
        return _lacking(found.name, lacks)
    return command


def _lacking(name: str, lacks: str) -> click.Command:
    def refuse(rest: tuple[str, ...]) -> None:  # noqa: ARG001 - click's
        raise click.ClickException(f"{name}: {lacks}")

    everything = click.Argument(["rest"], nargs=-1, type=click.UNPROCESSED)
    settings = {"ignore_unknown_options": True}
    return click.Command(name, params=[everything], callback=refuse, context_settings=settings, short_help=lacks)
