"""What the daemons (`nitro-card`, `nitro-chip`, `nitro-vpc`) do alike at their start: logging, and limits."""

from __future__ import annotations

import logging
import resource
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from nitro_emu.log_ring import LineFormatter

_SO_PASSRIGHTS: Final = 83
_UCRED: Final = struct.Struct("iII")  # pid, uid, gid


@contextmanager
def logging_to_stderr(*more: logging.Handler, as_json: bool, level: int | str = logging.INFO) -> Iterator[None]:
    """Log to stderr, and to `more`, until the end of the block."""
    root, console = logging.getLogger(), logging.StreamHandler(sys.stderr)
    console.setFormatter(LineFormatter(as_json=as_json))
    before = root.level
    root.setLevel(level)
    for handler in (*more, console):
        root.addHandler(handler)
    try:
        yield
    finally:
        for handler in (*more, console):
            root.removeHandler(handler)
        root.setLevel(before)


def refuse_descriptors(listener: socket.socket) -> None:
    """Let nobody send descriptors to what a Unix socket accepts (Linux 6.16; before, this has no effect).

    Those that a process does not take are closed in its thread as it reads, which may block it (`device.closer`).
    """
    with suppress(OSError):
        listener.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)


def peer_credentials(client: socket.socket) -> tuple[int, int]:
    """Return the pid and the uid that have connected, as the kernel says."""
    pid, uid, _ = _UCRED.unpack(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return int(pid), int(uid)


def raise_descriptor_limit() -> None:
    """Allow as many descriptors as the system lets this process have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
