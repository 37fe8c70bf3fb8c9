"""Which ranks' processes have died: a TCP connection between each of them and rank 0, which carries nothing.

1. The kernel ends the connections of a process that dies, however it dies, and keeps those of one that lives, even if
   its interpreter is held for seconds. So this tells a rank that was killed from a busy one, which silence cannot.
2. A connection may end for other reasons, and anybody on its path can end it. So its end is only a question, which goes
   by SRD, over all paths: only a rank that is silent for `SILENT_S` then is lost. Others connect anew.
3. Rank 0 tells the others whom it has lost, and they see by themselves when it is rank 0. Where no connection can be
   had, or a whole host is gone, silence alone decides (`srd.torch.rendezvous.UNRESPONSIVE_AFTER_S`).
4. A process that a rank has forked has its connections, too, and would keep them: there they are replaced.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import socket
import time
import weakref
from contextlib import suppress
from typing import Final

from netns.base.tasks import Tasks
from srd.torch.group_error import GroupError
from srd.torch.mesh import Mesh

SILENT_S: Final = 1.0
"""As elsewhere in SRD (`ProtocolConfig.unresponsive_after_s`), which is too short only for one that is held."""
LOOKS: Final = 10
RETRY_S: Final = 1.0
GREETING_S: Final = 10.0
"""Time for a connection to say whose it is."""
TOKEN_BYTES: Final = 16
RANK_BYTES: Final = 4

_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _replace() -> None:
    """Let go of the connections in a forked process, and keep their numbers, which objects there still have."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for sock in list(_sockets):
        if sock.fileno() >= 0:
            os.dup2(nowhere, sock.fileno(), inheritable=False)
    os.close(nowhere)


os.register_at_fork(after_in_child=_replace)


def _ours(sock: socket.socket) -> socket.socket:
    sock.settimeout(0)
    _sockets.add(sock)
    return sock


class RankWatch:
    """One rank's end. Used on the loop's thread alone."""

    def __init__(self, host: str, *, token: str = "") -> None:
        """Listen at `host`, without a token: at rank 0. Raises OSError."""
        self.token = token or secrets.token_hex(TOKEN_BYTES)
        self.port = 0
        self._tasks = Tasks()
        self._listening: socket.socket | None = None
        if not token:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._listening = _ours(socket.create_server((host, 0), family=family, backlog=128))
            self.port = self._listening.getsockname()[1]

    def begin(self, mesh: Mesh, *, host: str, port: int) -> None:
        """Watch the ranks of a group; `host` and `port`: of rank 0."""
        if self._listening is not None:
            self._tasks.start(self._accept(mesh, self._listening))
        elif port:
            self._tasks.start(self._connect(mesh, host, port))

    async def _accept(self, mesh: Mesh, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(listening)
            except OSError:  # of one connection, or too many files
                await asyncio.sleep(RETRY_S)
                continue
            self._tasks.start(self._serve(mesh, _ours(sock)))

    async def _serve(self, mesh: Mesh, sock: socket.socket) -> None:
        with sock:
            try:
                async with asyncio.timeout(GREETING_S):
                    greeting = await _receive(sock, TOKEN_BYTES + RANK_BYTES)
            except (OSError, TimeoutError):
                return
            rank = int.from_bytes(greeting[TOKEN_BYTES:], "big")
            if hmac.compare_digest(greeting[:TOKEN_BYTES], bytes.fromhex(self.token)) and rank in mesh.links:
                await self._ended(mesh, sock, rank=rank)

    async def _connect(self, mesh: Mesh, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        greeting = bytes.fromhex(self.token) + mesh.rank.to_bytes(RANK_BYTES, "big")
        while mesh.links[0].error is None:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            with _ours(socket.socket(family, socket.SOCK_STREAM)) as sock:
                try:
                    await loop.sock_connect(sock, (host, port))
                    await loop.sock_sendall(sock, greeting)
                except OSError:
                    pass
                else:
                    await self._ended(mesh, sock, rank=0)
            await asyncio.sleep(RETRY_S)

    async def _ended(self, mesh: Mesh, sock: socket.socket, *, rank: int) -> None:
        """Wait until a connection has ended, and end the group if the other rank is silent then."""
        with suppress(OSError):
            await _receive(sock, 1)
        link = mesh.links[rank]
        since = time.monotonic()
        link.ask()
        for _ in range(LOOKS):  # each lets the loop read first, however late it is
            await asyncio.sleep(SILENT_S / LOOKS)
            if link.error is not None or link.peer.ended or link.peer.last_packet_at > since:
                return
        mesh.on_lost(link, GroupError(f"{link.name} is lost: its process has ended"), is_fatal=True)

    def close(self) -> None:
        """End all connections."""
        self._tasks.cancel()
        if self._listening is not None:
            self._listening.close()


async def _receive(sock: socket.socket, count: int) -> bytes:
    """Return so many bytes. Raises OSError when the connection ends before."""
    found = b""
    while len(found) < count:
        more = await asyncio.get_running_loop().sock_recv(sock, count - len(found))
        if not more:
            raise ConnectionResetError
        found += more
    return found
