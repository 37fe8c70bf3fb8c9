"""`srd-lab uml`: run a command under a kernel that has netem, independent of the host's."""

from __future__ import annotations

import shutil
import sys

import click

from netns.backends.uml import MEMORY_BYTES, run_uml
from netns.base.options import Size
from netns.errors import BackendError
from netns.signals import signals_raise


@click.command("uml", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--memory",
    "memory_bytes",
    type=Size(),
    default=f"{MEMORY_BYTES >> 30}G",
    show_default=True,
    help="The guest's memory, as 512M or 2G.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def uml_command(memory_bytes: int, command: tuple[str, ...]) -> None:
    """Run COMMAND under User-Mode Linux; the exit status is that of COMMAND.

    The guest sees the host's files, has a network of its own, and netem:

    \b
      srd-lab uml -- srd-lab up reference --backend kernel
      srd-lab uml -- sh -c 'srd-lab up reference && srd-lab verify'

    It needs no root, boots in seconds, and has one slow CPU: use it to test what netem does, not how fast.
    """  # noqa: D301 - \b is click's mark for "do not rewrap"
    arguments = command[1:] if command[0] == "--" else command
    if not arguments:
        raise click.UsageError("no command; for example: srd-lab uml -- tc qdisc show")
    if shutil.which(arguments[0]) is None:
        raise BackendError(f"{arguments[0]}: no such command")
    with signals_raise():
        sys.exit(run_uml(arguments, memory_bytes=memory_bytes))
