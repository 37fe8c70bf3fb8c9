"""`srd-lab rootless`: run a command that may build labs, for users who are not root.

Theory of operation. A user namespace makes its creator root over the namespaces that it owns (user_namespaces(7)):
network namespaces, for links, routes and qdiscs; and mounts, for a new /run, which contains the state of `ip netns` and
the labs' records. All of it belongs to the command and ends with it, as does every process that it leaves behind (when
the first process of a PID namespace ends, the kernel ends the others).

What only root may do outside is still not possible: negative niceness, larger socket buffers, access to files. The
relay needs /dev/net/tun to be readable and writable for the user.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import click

from netns.errors import BackendError
from netns.programs import tool

_INSIDE = 'mount -t tmpfs tmpfs /run && mkdir -p /run/netns && exec "$@"'
_NAMESPACES = ("--user", "--map-root-user", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child")


@click.command("rootless", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def rootless(command: tuple[str, ...]) -> None:
    """Run COMMAND where it may build labs without root; the exit status is that of COMMAND.

    \b
      srd-lab rootless -- sh -c 'srd-lab up clos.yaml && srd-lab verify'

    Its labs are invisible to others, and end with it. It needs user namespaces, and for the relay backend access to
    /dev/net/tun; on systems that allow neither, use `srd-lab uml`.
    """  # noqa: D301 - \b is click's mark for "do not rewrap"
    arguments = command[1:] if command[0] == "--" else command
    if not arguments:
        raise click.UsageError("no command; for example: srd-lab rootless -- srd-lab up reference")
    if shutil.which(arguments[0]) is None:
        raise BackendError(f"{arguments[0]}: no such command")
    argv = [tool("unshare"), *_NAMESPACES, "sh", "-c"]
    tried = subprocess.run([*argv, _INSIDE, "sh", "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        reason = (tried.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise BackendError(f"this system allows no user namespaces ({reason}); use srd-lab uml, or root")
    sys.stdout.flush()
    os.execv(argv[0], [*argv, _INSIDE, "sh", *arguments])  # noqa: S606 - the command is passed as arguments, not as shell text
