"""The command `nitro-card`: a card, and what it says about itself.

Exit status 0: done; 1: it failed; 2: wrong usage, or wrong settings. Errors are one line on stderr. A command's module
is imported when the command is used: the card's own takes longer to import than most commands to run.
"""

from __future__ import annotations

from typing import Final

import click

from netns.base.program import Program, version_option
from nitro_emu.command import STATUSES

COMMANDS: Final = {
    "attest": "nitro_emu.cli.attest:attest",
    "audit": "nitro_emu.cli.attest:audit",
    "env": "nitro_emu.cli.env:env",
    "logs": "nitro_emu.cli.ask:logs",
    "metrics": "nitro_emu.cli.ask:metrics",
    "run": "nitro_emu.cli.run:run_command",
    "status": "nitro_emu.cli.ask:status",
    "update": "nitro_emu.cli.ask:update",
}
"""Module and object of each command."""


@click.group("nitro-card", cls=Program, commands_at=COMMANDS, statuses=STATUSES)
@version_option("nitro-card")
def cli() -> None:
    """Run an emulated EFA card: RDMA devices that programs of this host open, as they open the hardware's.

    First steps:

    \b
      nitro-card run card-a                    serve the devices of a file or an example, until a signal
      nitro-card status                        show the devices of a running card
      nitro-card env -- python my_program.py   run a program that imports pyverbs on them
    """  # noqa: D301 - \b is click's mark for "do not rewrap"
