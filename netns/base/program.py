"""Command lines by click: how a program ends, and commands whose modules are imported when they are used.

    @click.group("srd-lab", cls=Program, commands_at={"up": "netns.cli.commands:up", ...}, statuses={LabError: 1})
    def main() -> None: ...

A program ends with its command's status, by default 0. Any error is one line on stderr: exit status 2 for wrong usage,
what `statuses` says for an error of that kind (the first that fits), 1 for output that cannot be written, 128 and the
signal's number after a signal. What runs until it is stopped (a daemon, a capture, a live view) ends with 0 then. What
has no status is a defect, and has a traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NoReturn

import click

from netns.base.build import version_text
from netns.base.entry import loaded
from netns.base.options import LEGEND
from netns.base.printable import printable
from netns.base.standard_streams import broken_pipes, flush_output, output_error

INTERRUPTED: Final = 130
"""A shell's status of what SIGINT ended."""
_SETTINGS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def version_option(name: str, *, more: Callable[[], str] = str) -> Callable[[Any], Any]:
    """Add --version, which says the version and the build; `more`: returns what follows."""

    def show(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click's signature
        if wanted and not ctx.resilient_parsing:
            click.echo(f"{name} {version_text()}{more()}")
            ctx.exit()

    return click.option(
        "--version",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=show,
        help="Show the version and the build.",
    )


def legend(command: click.Command) -> str:
    """Return how the amounts that a command takes are written; empty if it takes none."""
    names = {part for option in command.params for part in (option.type.name, option.metavar)}
    return "\n\n".join(text for name, text in LEGEND.items() if name in names)


class CommandGroup(click.Group):
    """Commands; the help of each says how the amounts that it takes are written."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, or None if there is none of that name."""
        command = super().get_command(ctx, cmd_name)
        return None if command is None else with_legend(command)


def inner_command(words: Sequence[str], *, example: str) -> list[str]:
    """Return the command line that a command is to run, without a leading --. Raises click.UsageError without any."""
    found = [*words[1:]] if words[:1] == ("--",) else [*words]
    if not found:
        raise click.UsageError(f"no command; for example: {example}")
    return found


def with_legend(command: click.Command) -> click.Command:
    """Return a command whose help says how its amounts are written."""
    command.epilog = command.epilog or legend(command) or None
    return command


class ProgramCommand(click.Command):
    """A program of one command."""

    def __init__(self, *args: Any, statuses: Mapping[type[Exception], int], **kwargs: Any) -> None:
        super().__init__(*args, **{"context_settings": _SETTINGS, **kwargs})
        self._statuses = statuses
        with_legend(self)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002 - click's signature
        **extra: Any,
    ) -> Any:
        """Run the command line, and leave the process unless `standalone_mode` is False."""
        run = partial(super().main, args, prog_name or self.name, complete_var, standalone_mode=False, **extra)
        return self._ended(run) if standalone_mode else run()

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Raises click.Abort on SIGINT, for which click itself prints an empty line."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.Abort from None

    def _ended(self, run: Callable[[], Any]) -> NoReturn:
        try:
            with broken_pipes():
                status = run()
            flush_output()
        except click.ClickException as error:
            status = self._complain(error.format_message(), status=error.exit_code)
        except (click.Abort, KeyboardInterrupt):
            status = self._complain("interrupted", status=INTERRUPTED)
        except SystemExit as stop:  # of netns.signals
            if isinstance(stop.code, int) and stop.code > 128:
                self._complain("interrupted", status=stop.code)
            raise
        except tuple(self._statuses) as error:
            wanted = next(status for kind, status in self._statuses.items() if isinstance(error, kind))
            status = self._complain(str(error), status=wanted)
        except OSError as error:
            status = self._complain(output_error(error), status=1)
        sys.exit(status if isinstance(status, int) else 0)

    def _complain(self, line: str, *, status: int) -> int:
        """Print an error line; return the exit status."""
        with suppress(OSError):  # nobody can be told
            click.echo(f"{self.name}: {printable(line)}", err=True)
        return status


class Program(ProgramCommand, CommandGroup):
    """A program of several commands: click's own, and those of `commands_at`, name -> MODULE:OBJECT."""

    def __init__(self, *args: Any, commands_at: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._commands_at = commands_at or {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; without any, say where the commands are listed."""
        if not args and not ctx.resilient_parsing:
            raise click.UsageError(f"no command given; {self.name} --help lists them")
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted({*self._commands_at, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, or None if there is none of that name."""
        if cmd_name not in self._commands_at:
            return super().get_command(ctx, cmd_name)
        return with_legend(loaded(self._commands_at[cmd_name]))
