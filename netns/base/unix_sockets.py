"""Unix sockets: listening at a path, who has connected, and a client that asks in lines of JSON."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

BACKLOG: Final = 64
MAX_PATH_BYTES: Final = 107
"""Of a path: sockaddr_un.sun_path has 108 with the terminating zero."""
MAX_REPLY_BYTES: Final = 16 << 20
"""Of a line. The statistics of a card with 256 VFs take 400 KiB, 1,000 of its log's longest records 4 MiB."""

_SO_PASSRIGHTS: Final = 83
_UCRED: Final = struct.Struct("iII")  # pid, uid, gid


def listen(
    path: Path, *, kind: int = socket.SOCK_STREAM, mode: int = 0o600, takes_descriptors: bool = False
) -> socket.socket:
    """Return a socket without blocking that listens at `path`, where it replaces one that nobody listens at.

    `mode`: who may connect. `takes_descriptors`: whether clients may send some. Raises OSError.
    """
    listener = socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK)
    before = os.umask(0o777 & ~mode)
    try:
        if not takes_descriptors:
            _refuse_descriptors(listener)
        _remove_left(path, kind=kind)
        listener.bind(str(path))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(before)
    return listener


def _remove_left(path: Path, *, kind: int) -> None:
    """Remove a socket that nobody listens at. Raises OSError if there is anything else."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(errno.EEXIST, "it is no socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK) as trial:
        try:
            trial.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError as error:
            if error.errno not in {errno.EAGAIN, errno.EPROTOTYPE}:
                raise
    raise OSError(errno.EADDRINUSE, "a process listens there")


def _refuse_descriptors(listener: socket.socket) -> None:
    """Let nobody send descriptors to what a Unix socket accepts (Linux 6.16; before, this has no effect).

    Those that a process does not take are closed in its thread as it reads, which may block it.
    """
    with suppress(OSError):
        listener.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)


def peer_credentials(client: socket.socket) -> tuple[int, int]:
    """Return the pid and the uid that have connected, as the kernel says."""
    pid, uid, _ = _UCRED.unpack(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return int(pid), int(uid)


class LineClient:
    """A connection to a socket that answers each line, a JSON object, with another; it blocks."""

    def __init__(self, path: Path, *, timeout_s: float) -> None:
        """Connect. Raises OSError."""
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(timeout_s)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise
        self._replies = self._socket.makefile("rb")

    def ask_untrusted(self, message: Mapping[str, object]) -> dict[str, Any]:
        """Return the reply. Raises OSError; EOFError if there is none, or a part; ValueError for what is no object."""
        with suppress(BrokenPipeError):  # it has sent us away, and said why
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        line = self._replies.readline(MAX_REPLY_BYTES)
        if not line.endswith(b"\n"):
            raise EOFError
        try:
            reply = json.loads(line)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
        if not isinstance(reply, dict):
            raise ValueError("not a JSON object")  # noqa: TRY004 - as JSON that is none
        return reply

    def close(self) -> None:
        """End the connection."""
        self._replies.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
