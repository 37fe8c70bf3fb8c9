"""`nitro-volume`: block devices over SRD, their servers, and where a host attaches them.

Exit status 0: done; 1: it failed; 2: wrong usage. Errors are one line on stderr. A command's module is imported when
the command is used.
"""

from __future__ import annotations

from typing import Final

import click

from netns.base.program import Program, version_option
from nitro_emu.command import STATUSES

COMMANDS: Final = {
    "attach": "nitro_emu.cli.volume_attach:attach",
    "create": "nitro_emu.cli.volume_replicas:create",
    "detach": "nitro_emu.cli.volume_ask:detach",
    "ls": "nitro_emu.cli.volume_ask:list_command",
    "replace": "nitro_emu.cli.volume_replicas:replace_command",
    "scrub": "nitro_emu.cli.volume_replicas:scrub",
    "serve": "nitro_emu.cli.volume_serve:serve_command",
    "status": "nitro_emu.cli.volume_ask:status",
}
"""Module and object of each command."""


@click.group("nitro-volume", cls=Program, commands_at=COMMANDS, statuses=STATUSES)
@version_option("nitro-volume")
def cli() -> None:
    """Serve block devices over SRD, and attach them: programs of the host use them by NBD.

    First steps:

    \b
      nitro-volume attach --memory 1G vol-1           a volume in memory, to try clients with
      nbdinfo 'nbd+unix:///vol-1?socket=/run/nitro-volume/vol-1.sock'
      nitro-volume status vol-1                       show what it has done, and how long it took
      nitro-volume detach vol-1
    \b
      srd keygen --psk volumes.psk                    for servers and hosts
      nitro-volume serve /srv/volumes --psk-file volumes.psk
      nitro-volume create vol-2 --size 10G --card-file card.yaml --psk-file volumes.psk \\
          --server rack-1=192.0.2.1 --server rack-2=192.0.2.2 --server rack-3=192.0.2.3
      nitro-volume attach vol-2 --card-file card.yaml --psk-file volumes.psk
      nitro-volume replace vol-2 192.0.2.3 --server rack-4=192.0.2.4 --psk-file volumes.psk
    """  # noqa: D301 - \b is click's mark for "do not rewrap"


if __name__ == "__main__":
    cli()
