"""`srd-lab rootless` and `srd-lab uml`: run a command that may build labs for who is not root, or has no netem.

Theory of operation of `rootless`. A user namespace makes its creator root over the namespaces that it owns
(user_namespaces(7)): network namespaces, for links, routes and qdiscs; and mounts, for a new /run, which contains the
state of `ip netns` and the labs' records. All of it belongs to the command and ends with it, as does every process that
it leaves behind (when the first process of a PID namespace ends, the kernel ends the others).

What only root may do outside is still not possible: negative niceness, larger socket buffers, access to files. The
relay needs /dev/net/tun to be readable and writable for the user.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import click

from netns.backends.uml import MEMORY_BYTES, run_uml
from netns.base.options import Size
from netns.base.program import inner_command
from netns.errors import BackendError
from netns.programs import tool
from netns.signals import signals_raise

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
    arguments = _known(command, example="srd-lab rootless -- srd-lab up reference")
    argv = [tool("unshare"), *_NAMESPACES, "sh", "-c"]
    tried = subprocess.run([*argv, _INSIDE, "sh", "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        reason = (tried.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise BackendError(f"this system allows no user namespaces ({reason}); use srd-lab uml, or root")
    sys.stdout.flush()
    os.execv(argv[0], [*argv, _INSIDE, "sh", *arguments])  # noqa: S606 - the command is passed as arguments, not as shell text


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
    arguments = _known(command, example="srd-lab uml -- tc qdisc show")
    with signals_raise():
        sys.exit(run_uml(arguments, memory_bytes=memory_bytes, is_shown=True))


def _known(command: tuple[str, ...], *, example: str) -> list[str]:
    """Return the command without a leading --. Raises UsageError if none is given, BackendError if there is none."""
    arguments = inner_command(command, example=example)
    if shutil.which(arguments[0]) is None:
        raise BackendError(f"{arguments[0]}: no such command")
    return arguments
