"""The `srd` command: `srd recv`, `send`, `perf`, `keygen`, `trace`, `metrics`, `top`, and those of plugins.py.

Exit status 0: everything was done and verified; 1: it failed; 2: wrong usage. Errors are one line on stderr.
"""

from __future__ import annotations

import os
import sys

import click

from devmem import DevmemError
from srd.build import BUILD
from srd.cli.metrics import metrics
from srd.cli.perf import perf
from srd.cli.plugins import Group
from srd.cli.recv import recv
from srd.cli.security import keygen
from srd.cli.send import send
from srd.cli.top import top
from srd.cli.trace import trace
from srd.errors import SrdError
from srd.printable import printable


@click.group(
    cls=Group,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="open-srd", prog_name="srd", message=f"%(prog)s %(version)s, {BUILD}")
@click.pass_context
def cli(context: click.Context) -> None:
    """Send and receive files, and measure, over SRD, a reliable multipath transport with out-of-order delivery."""
    if context.invoked_subcommand is None:
        raise click.UsageError("no command given; srd --help lists them")


cli.add_command(recv)
cli.add_command(send)
cli.add_command(perf)
cli.add_command(keygen)
cli.add_command(trace)
cli.add_command(metrics)
cli.add_command(top)


def main() -> None:
    """Run the command line; the entry point of the console script."""
    try:
        status = cli.main(standalone_mode=False)
    except click.ClickException as error:
        status = _complain(error.format_message(), status=error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        status = _complain("interrupted")
    except (SrdError, DevmemError) as error:
        status = _complain(str(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter reports an error at exit
        status = _complain("the output was closed by its reader")
    sys.exit(status if isinstance(status, int) else 0)


def _complain(line: str, *, status: int = 1) -> int:
    """Print an error line; return the exit status."""
    click.echo(f"srd: {printable(line)}", err=True)
    return status
