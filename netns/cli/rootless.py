"""`srd-lab rootless`: a command that may build labs, for users who are not root.

Theory of operation. A user namespace makes its creator root over the namespaces that it owns (user_namespaces(7)):
network namespaces, so that links, routes and qdiscs can be made; and mounts, so that /run can be a new one, where `ip
netns` and the labs' records are. All of it is the command's own and ends with it, as does every process that it leaves
(the first process of a PID namespace takes the others with it).

What root alone may do outside stays so: niceness, larger socket buffers, files. The relay needs /dev/net/tun to be
readable and writable for the user.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import click

from netns.backends.kernel.netlink import tool
from netns.errors import BackendError

_INSIDE = 'mount -t tmpfs tmpfs /run && mkdir -p /run/netns && exec "$@"'
_NAMESPACES = ("--user", "--map-root-user", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child")


@click.command("rootless", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def rootless(command: tuple[str, ...]) -> None:
    """Run COMMAND where it may build labs without being root; its exit status is this command's.

    \b
      srd-lab rootless -- sh -c 'srd-lab up clos.yaml && srd-lab verify'

    Its labs are its own, seen by nobody else, and end with it. It needs user namespaces, and for the relay backend
    access to /dev/net/tun; where a system allows neither, `srd-lab uml` needs nothing.
    """  # noqa: D301 - \b is click's mark for "do not rewrap"
    words = command[1:] if command[0] == "--" else command
    if not words:
        raise click.UsageError("no command; for example: srd-lab rootless -- srd-lab up reference")
    if shutil.which(words[0]) is None:
        raise BackendError(f"{words[0]}: no such command")
    argv = [tool("unshare"), *_NAMESPACES, "sh", "-c"]
    tried = subprocess.run([*argv, _INSIDE, "sh", "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        reason = (tried.stderr.strip().splitlines() or ["it says not why"])[-1]
        raise BackendError(f"this system allows no user namespaces ({reason}); use srd-lab uml, or root")
    sys.stdout.flush()
    os.execv(argv[0], [*argv, _INSIDE, "sh", *words])  # noqa: S606 - the shell is ours, the words are arguments
