"""Where NBD clients connect: a Unix socket, or a port."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final, Self

from netns.base.addresses import host_port_text
from netns.base.unix_sockets import listen
from nitro_emu.ebs.errors import VolumeError
from nitro_emu.ebs.front import Front
from nitro_emu.ebs.nbd.session import NbdSession

MAX_CLIENTS: Final = 64
"""Connected at a time; fio opens one a job, and nbdcopy four."""
READ_AHEAD_BYTES: Final = 1 << 20
"""Of a connection's buffer: writes of up to half of it are read in few system calls."""

_log: Final = logging.getLogger(__name__)


class NbdServer:
    """Serves one volume to any number of clients until it is closed."""

    def __init__(self, front: Front, *, name: str) -> None:
        self._front = front
        self._name = name
        self._servers: list[asyncio.Server] = []
        self._paths: list[Path] = []
        self._sessions: dict[asyncio.Task[None], asyncio.StreamReader] = {}

    @property
    def clients(self) -> int:
        """How many are connected."""
        return len(self._sessions)

    async def listen_unix(self, path: Path) -> None:
        """Listen at a path, where a socket that nobody listens at is replaced. Raises VolumeError."""
        try:
            listener = listen(path)
        except OSError as error:
            reason = error.strerror or str(error)
            raise VolumeError(f"{path}: cannot listen: {reason}; name another one with --socket") from error
        self._servers.append(await asyncio.start_unix_server(self._serve, sock=listener, limit=READ_AHEAD_BYTES))
        self._paths.append(path)

    async def listen_tcp(self, address: tuple[str, int]) -> tuple[str, int]:
        """Listen at a host and port; return them. Raises VolumeError."""
        try:
            server = await asyncio.start_server(self._serve, *address, limit=READ_AHEAD_BYTES)
        except (OSError, UnicodeError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or "no such address"
            raise VolumeError(f"--nbd {host_port_text(*address)}: cannot listen ({reason}); choose another") from error
        self._servers.append(server)
        host, port = server.sockets[0].getsockname()[:2]
        return host, port

    async def close(self) -> None:
        """Accept nobody, read no more requests, and return when those under way have ended. May be called again."""
        for server in self._servers:
            server.close()
        for path in self._paths:
            path.unlink(missing_ok=True)
        self._servers.clear()
        self._paths.clear()
        for reader in self._sessions.values():
            reader.set_exception(ConnectionAbortedError("the volume is detached"))
        if self._sessions:
            await asyncio.wait(self._sessions)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._sessions) >= MAX_CLIENTS:
            _log.warning("%d NBD clients are connected, which is the limit; one more is sent away", MAX_CLIENTS)
            writer.transport.abort()
            return
        session = NbdSession(self._front, name=self._name, reader=reader, writer=writer)
        task = asyncio.ensure_future(session.serve())
        self._sessions[task] = reader
        task.add_done_callback(self._sessions.pop)
