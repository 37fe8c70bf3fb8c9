"""How the commands end: errors as one line on stderr, and an exit status."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import NoReturn

import click

from devmem.errors import DevmemError
from netns.base.printable import printable
from netns.base.standard_streams import broken_pipes, flush_output, output_error
from nitro_emu.errors import ConfigError, NitroError
from srd.errors import SrdError


def run_program(command: click.Command, *, name: str) -> NoReturn:
    """Run a command line, and leave the process.

    Exit status: what the command returns, by default 0; 2 for wrong usage or settings; 1 for other errors.
    """
    try:
        with broken_pipes():
            status = command.main(prog_name=name, standalone_mode=False)
        flush_output()
    except click.ClickException as error:
        status = _complain(name, error.format_message(), status=error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        status = _complain(name, "interrupted")
    except ConfigError as error:
        status = _complain(name, str(error), status=2)
    except (NitroError, SrdError, DevmemError) as error:
        status = _complain(name, str(error))
    except OSError as error:
        status = _complain(name, output_error(error))
    sys.exit(status if isinstance(status, int) else 0)


def _complain(name: str, line: str, *, status: int = 1) -> int:
    """Print an error line; return the exit status."""
    with suppress(OSError):  # nobody can be told
        click.echo(f"{name}: {printable(line)}", err=True)
    return status
