"""How the two ends of a measurement meet and keep in step: lines of JSON over TCP.

Whoever reaches the port can take part, as with rdma-core's and perftest's programs: use them in a trusted network.
"""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from nitro_emu.perf.plan import PerfError

DEFAULT_PORT: Final = 18515
"""As rdma-core's and perftest's."""

MAX_LINE_BYTES: Final = 64 << 10
CONNECT_TIMEOUT_S: Final = 10.0
FIRST_WITHIN_S: Final = 10.0
"""How long who has connected may send nothing; others wait meanwhile. A client begins at once."""


class Exchange:
    """A connection to the other end. A context manager."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lines = connected.makefile("rb", buffering=0)

    @classmethod
    def connect(cls, host: str, *, port: int) -> Self:
        """Connect to a server. Raises PerfError."""
        try:
            connected = socket.create_connection((host, port), CONNECT_TIMEOUT_S)
        except OSError as error:
            reason = error.strerror or str(error)
            raise PerfError(
                f"{host} port {port}: {reason}; start the same command there without a host, or check --port"
            ) from error
        connected.settimeout(None)
        return cls(connected)

    @classmethod
    def accept(cls, port: int, *, on_listening: Callable[[int], None]) -> Self:
        """Wait for a client at a port, 0: any that is free; `on_listening` is told which. Raises PerfError.

        What connects and sends no object, as a scanner of ports, is no client.
        """
        try:
            family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
            listener = socket.create_server(("", port), family=family, dualstack_ipv6=family == socket.AF_INET6)
        except OSError as error:
            raise PerfError(f"port {port}: cannot listen: {error.strerror}; choose another with --port") from error
        with listener:
            on_listening(listener.getsockname()[1])
            while True:
                connected, _ = listener.accept()
                if _begins_an_object(connected):
                    return cls(connected)
                connected.close()

    def send(self, **fields: object) -> None:
        """Send an object. Raises PerfError if the other end has gone."""
        try:
            self._socket.sendall(json.dumps(fields).encode() + b"\n")
        except OSError as error:
            raise PerfError(f"the other end has gone ({error.strerror})") from error

    def receive(self) -> dict[str, Any]:
        """Wait for an object. Raises PerfError: the other end has gone, sent something else, or an error."""
        line = bytearray()
        try:
            while not line.endswith(b"\n"):
                if len(line) > MAX_LINE_BYTES or not (byte := self._lines.readline(MAX_LINE_BYTES)):
                    raise PerfError("the other end has gone")
                line += byte
        except OSError as error:
            raise PerfError(f"the other end has gone ({error.strerror})") from error
        fields = _object_untrusted(bytes(line))
        if "error" in fields:
            raise PerfError(f"the other end: {fields['error']}")
        return fields

    def check(self) -> None:
        """Raise PerfError if the other end has gone, or has sent an error; for use while no object is due."""
        if not select.select([self._socket], [], [], 0)[0]:
            return
        try:
            waiting = self._socket.recv(MAX_LINE_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except OSError as error:
            raise PerfError(f"the other end has gone ({error.strerror})") from error
        if not waiting:
            raise PerfError("the other end has gone")
        if waiting.startswith(b'{"error"'):
            self.receive()

    def close(self) -> None:
        """End the connection."""
        self._lines.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _begins_an_object(connected: socket.socket) -> bool:
    connected.settimeout(FIRST_WITHIN_S)
    try:
        begins = connected.recv(1, socket.MSG_PEEK) == b"{"
    except OSError:
        return False
    connected.settimeout(None)
    return begins


def _object_untrusted(line: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise PerfError(f"the other end is none of these programs: it sent {line[:60]!r}")
    return fields
