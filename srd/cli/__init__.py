"""The `srd` command: `srd recv`, `send`, `perf`, `keygen`, `trace`, `metrics`, `top`, and those of plugins.py.

Exit status 0: everything was done and verified; 1: it failed; 2: wrong usage. Errors are one line on stderr.
A command's module is imported when the command is used, as what the others need takes a tenth of the start.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from typing import Final

import click

from devmem import DevmemError
from netns.base.printable import printable
from netns.base.standard_streams import broken_pipes, flush_output, output_error
from srd.build import BUILD
from srd.cli.plugins import Group as Plugins
from srd.errors import SrdError
from srd.secure.packets import library

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


class _Group(Plugins):
    """Imports commands when they are used; those of this package go before those of plugins."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted({*COMMANDS, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, or None if there is none of that name."""
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command


@click.group(
    cls=_Group,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(
    package_name="open-srd", prog_name="srd", message=f"%(prog)s %(version)s, {BUILD}; encrypts {library()}"
)
@click.pass_context
def cli(context: click.Context) -> None:
    """Send and receive files, and measure, over SRD, a reliable multipath transport with out-of-order delivery."""
    if context.invoked_subcommand is None:
        raise click.UsageError("no command given; srd --help lists them")


def main() -> None:
    """Run the command line; the entry point of the console script."""
    try:
        with broken_pipes():
            status = cli.main(standalone_mode=False)
        flush_output()
    except click.ClickException as error:
        status = _complain(error.format_message(), status=error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        status = _complain("interrupted")
    except (SrdError, DevmemError) as error:
        status = _complain(str(error))
    except OSError as error:
        status = _complain(output_error(error))
    sys.exit(status if isinstance(status, int) else 0)


def _complain(line: str, *, status: int = 1) -> int:
    """Print an error line; return the exit status."""
    with suppress(OSError):  # nobody can be told
        click.echo(f"srd: {printable(line)}", err=True)
    return status
