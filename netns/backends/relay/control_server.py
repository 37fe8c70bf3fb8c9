"""The relay's control socket: requests and replies are JSON, one object a line.

The relay's own loop serves it and never blocks: sockets are non-blocking, a request is at most one read, and the
connection of a client that is too slow to take a reply is closed.
"""

from __future__ import annotations

import errno
import json
import select
import socket
from typing import TYPE_CHECKING, Any, Final

from netns.base.unix_sockets import listen
from netns.errors import BackendError, LabError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MAX_REQUEST_BYTES: Final = 65536


class ControlServer:
    """Listen at `path` and pass each request to `answer`, whose LabErrors become {"error": ...}."""

    def __init__(self, path: Path, *, epoll: select.epoll, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._path = path
        self._epoll = epoll
        self._answer = answer
        self._clients: dict[int, socket.socket] = {}
        self._partial: dict[int, bytes] = {}
        self._listener = _listen(path)
        self._identity = _identity(path)
        epoll.register(self._listener.fileno(), select.EPOLLIN)

    def handle(self, fd: int) -> None:
        """Accept, or read and reply, on a readable `fd`; ignore an `fd` that is not one of the server's."""
        if fd == self._listener.fileno():
            self._accept()
        elif fd in self._clients:
            self._read(fd)

    def close(self) -> None:
        """Close all connections and remove the socket's path, if it is still this server's socket."""
        for fd in list(self._clients):
            self._drop(fd)
        self._listener.close()
        if _identity(self._path) == self._identity:
            self._path.unlink()

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:  # the client has gone, or there are no descriptors left: the relay goes on relaying
            return
        client.settimeout(0)
        self._clients[client.fileno()] = client
        self._partial[client.fileno()] = b""
        self._epoll.register(client.fileno(), select.EPOLLIN)

    def _read(self, fd: int) -> None:
        client = self._clients[fd]
        try:
            received = client.recv(MAX_REQUEST_BYTES)
            *lines, self._partial[fd] = (self._partial[fd] + received).split(b"\n")
            for line in lines:
                client.sendall(json.dumps(self._reply(line)).encode() + b"\n")
        except OSError:
            received = b""
        if not received or len(self._partial[fd]) > MAX_REQUEST_BYTES:
            self._drop(fd)

    def _drop(self, fd: int) -> None:
        self._epoll.unregister(fd)
        self._clients.pop(fd).close()
        del self._partial[fd]

    def _reply(self, line: bytes) -> dict[str, Any]:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            return {"error": f"not JSON: {error}"}
        if not isinstance(message, dict):
            return {"error": "a request is a JSON object"}
        try:
            return self._answer(message)
        except LabError as error:
            return {"error": str(error)}


def _listen(path: Path) -> socket.socket:
    try:
        return listen(path)  # for the owner alone, who may reshape a fabric
    except OSError as error:
        remedy = "; take its lab down first" if error.errno == errno.EADDRINUSE else ""
        raise BackendError(f"{path}: cannot listen: {error.strerror or error}{remedy}") from None


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
