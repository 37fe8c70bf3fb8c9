"""The command `srd-lab`: labs of network namespaces from the shell.

A command's module is imported when the command is used: all of them together take longer than most commands.
"""

from __future__ import annotations

from typing import Final

import click

from netns.base.program import Program, version_option
from netns.errors import INPUT_ERRORS, LabError

COMMANDS: Final = {
    "capture": "netns.cli.faults:capture_command",
    "cleanup": "netns.cli.commands:cleanup",
    "down": "netns.cli.commands:down",
    "exec": "netns.cli.commands:exec_command",
    "fail": "netns.cli.faults:fail_command",
    "metrics": "netns.cli.metrics:metrics",
    "place": "netns.cli.placement:place_command",
    "plan": "netns.cli.commands:plan_command",
    "queue": "netns.cli.queue:queue",
    "repair": "netns.cli.faults:repair_command",
    "rootless": "netns.cli.rootless:rootless",
    "run": "netns.cli.run:run",
    "run-schedule": "netns.cli.faults:run_schedule",
    "set": "netns.cli.faults:set_command",
    "status": "netns.cli.commands:status",
    "top": "netns.cli.top:top",
    "topology": "netns.cli.placement:topology_command",
    "uml": "netns.cli.rootless:uml_command",
    "up": "netns.cli.commands:up",
    "verify": "netns.cli.verify:verify",
}
"""Module and object of each command."""


@click.group(
    "srd-lab",
    cls=Program,
    commands_at=COMMANDS,
    statuses={**dict.fromkeys(INPUT_ERRORS, 2), LabError: 1},
)
@version_option("srd-lab")
def main() -> None:
    """Build networks of Linux namespaces for SRD or any other program.

    FILE is a topology in YAML, or an example: `reference` (two hosts, four paths of 250 Mbit/s between them) or
    `cluster` (16 hosts in four blocks). First steps:

    \b
      srd-lab plan reference                 show what would be built; needs no root
      srd-lab up reference                   build it
      srd-lab verify                         show the spine of each source port
      srd-lab exec h1 -- ping -c 3 h2        run a command in a host
      srd-lab down                           remove everything
    """  # noqa: D301 - \b is click's mark for "do not rewrap"
