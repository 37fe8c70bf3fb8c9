"""The command `srd-lab`: labs of network namespaces from the shell.

A command's module is imported when the command is used: all of them together take longer than most commands.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, Final

import click

from netns.base.standard_streams import broken_pipes, flush_output, output_error
from netns.errors import INPUT_ERRORS, LabError

COMMANDS: Final = {
    "capture": "netns.cli.faults:capture_command",
    "cleanup": "netns.cli.cleanup:cleanup",
    "discover": "netns.cli.faults:discover",
    "down": "netns.cli.commands:down",
    "exec": "netns.cli.commands:exec_command",
    "fail": "netns.cli.faults:fail_command",
    "metrics": "netns.cli.metrics:metrics",
    "place": "netns.cli.placement:place_command",
    "plan": "netns.cli.commands:plan_command",
    "repair": "netns.cli.faults:repair_command",
    "rootless": "netns.cli.rootless:rootless",
    "run": "netns.cli.run:run",
    "run-schedule": "netns.cli.faults:run_schedule",
    "set": "netns.cli.faults:set_command",
    "status": "netns.cli.commands:status",
    "top": "netns.cli.top:top",
    "topology": "netns.cli.placement:topology_command",
    "uml": "netns.cli.uml:uml_command",
    "up": "netns.cli.commands:up",
    "verify": "netns.cli.commands:verify",
}
"""Module and object of each command."""


class _Group(click.Group):
    """Imports commands when they are used, and turns this package's errors into one line and an exit status."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as in click
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as in click
        """Return a command, or None if there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command line."""
        try:
            with broken_pipes():
                return super().main(*args, **extra)
        except OSError as error:
            click.echo(f"srd-lab: {output_error(error)}", err=True)
            sys.exit(1)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            status = super().invoke(ctx)
            flush_output()
        except LabError as error:
            click.echo(f"srd-lab: {error}", err=True)
            ctx.exit(2 if isinstance(error, INPUT_ERRORS) else 1)
        except KeyboardInterrupt:
            click.echo("srd-lab: interrupted", err=True)
            ctx.exit(130)
        except SystemExit as stop:  # also from netns.lab.builder, on SIGTERM and SIGHUP
            if isinstance(stop.code, int) and stop.code > 128:
                click.echo("srd-lab: interrupted", err=True)
            raise
        return status


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="open-srd", prog_name="srd-lab")
def main() -> None:
    """Build networks of Linux namespaces for SRD or any other program.

    FILE is a topology in YAML, or an example: `reference` (two hosts, four paths of 250 Mbit/s between them) or
    `cluster` (16 hosts in four blocks). First steps:

    \b
      srd-lab plan reference                 show what would be built; needs no root
      srd-lab up reference                   build it
      srd-lab verify                         show the spine of each source port
      srd-lab exec h1 -- ping -c 3 10.0.2.1  run a command in a host
      srd-lab down                           remove everything
    """  # noqa: D301 - \b is click's mark for "do not rewrap"
