"""The `srd` command: `srd recv`, `send`, `perf`, `keygen`, `trace`, `metrics`, `top`, and those of plugins.py.

Exit status 0: everything was done and verified; 1: it failed; 2: wrong usage. Errors are one line on stderr.
A command's module is imported when the command is used, as what the others need takes a tenth of the start.
"""

from __future__ import annotations

from typing import Final

import click

from devmem import DevmemError
from srd.build import BUILD
from srd.cli.plugins import Program
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


@click.group("srd", cls=Program, commands_at=COMMANDS, statuses={SrdError: 1, DevmemError: 1})
@click.version_option(
    package_name="open-srd", prog_name="srd", message=f"%(prog)s %(version)s, {BUILD}; encrypts {library()}"
)
def cli() -> None:
    """Send and receive files, and measure, over SRD, a reliable multipath transport with out-of-order delivery."""
