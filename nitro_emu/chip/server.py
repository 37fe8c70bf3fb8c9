"""The chip's socket: SOCK_SEQPACKET, on the event loop, nothing that blocks on a client.

Rules.
1. Only root, the chip's own user and the card's user are served: the kernel tells who has connected (SO_PEERCRED).
2. Whatever a client sends ends at most its own connection. A client that does not take its answers is disconnected.
3. One process serves a chip's directory: its lock file is locked (flock) as long as the process lives.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from netns.base.files import locked_file
from netns.base.unix_sockets import listen, peer_credentials
from nitro_emu.chip.chip import Chip
from nitro_emu.chip.messages import MAX_REQUEST_BYTES, encode
from nitro_emu.chip.service import ChipUser, Service
from nitro_emu.closing import Closing
from nitro_emu.errors import TrustError

MAX_CLIENTS: Final = 32
LOCK_FILE: Final = "chip.lock"

_log: Final = logging.getLogger(__name__)


class ChipServer(Closing):
    """Serves one chip on a socket."""

    def __init__(self, chip: Chip, *, path: Path, card_uid: int | None = None) -> None:
        """Listen. `card_uid`: a user who may boot the card, besides root and the chip's own. Raises TrustError."""
        self._service = Service(chip)
        self._path = path
        self._uids = {0, os.geteuid()} | ({card_uid} if card_uid is not None else set())
        self._listener = _listen(path, mode=0o600 if card_uid is None else 0o666)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._clients: set[_Connection] = set()

    async def run(self) -> None:
        """Serve until this is cancelled."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._listener, self._accept, self._loop)
        try:
            await self._loop.create_future()
        finally:
            self.close()

    def close(self) -> None:
        """End all clients, and remove the socket. May be called again."""
        if self._listener.fileno() < 0:
            return
        if self._loop is not None:
            self._loop.remove_reader(self._listener)
            for client in [*self._clients]:
                self._end(client, self._loop)
        self._listener.close()
        with suppress(OSError):
            self._path.unlink()

    def _accept(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            accepted, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:  # no descriptor is left, or the client has gone
            _log.warning("cannot accept: %s", error.strerror)
            return
        accepted.settimeout(0)
        _, uid = peer_credentials(accepted)
        if uid not in self._uids:
            _refuse(accepted, f"uid {uid} may not use this chip; run the card as its user, or name it with --card-uid")
        elif len(self._clients) >= MAX_CLIENTS:
            _refuse(accepted, f"{MAX_CLIENTS} clients are connected, which is the limit; try again")
        else:
            client = _Connection(accepted)
            self._clients.add(client)
            loop.add_reader(accepted, self._receive, client, loop)

    def _receive(self, client: _Connection, loop: asyncio.AbstractEventLoop) -> None:
        """Answer one request."""
        try:
            packet = client.connection.recv(MAX_REQUEST_BYTES + 1)
        except BlockingIOError:
            return
        except OSError:  # it has gone
            packet = b""
        if not packet or not self._answer(packet, client=client):
            self._end(client, loop)

    def _answer(self, packet: bytes, *, client: _Connection) -> bool:
        """Send what answers a packet, and wipe what is secret of it; return whether the client has taken it."""
        answers = self._service.answer_untrusted(packet, client=client)
        try:
            for answer in answers:
                client.connection.send(answer)
        except OSError as error:  # among them BlockingIOError: it does not take what it has asked for
            _log.info("a client is disconnected, for it takes no answers: %s", error.strerror)
            return False
        finally:
            for answer in answers:
                if isinstance(answer, bytearray):
                    answer[:] = bytes(len(answer))
        return True

    def _end(self, client: _Connection, loop: asyncio.AbstractEventLoop) -> None:
        self._clients.discard(client)
        loop.remove_reader(client.connection)
        client.connection.close()
        self._service.end(client)


class _Connection(ChipUser):
    """A client's end of a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def has_ended(self) -> bool:
        """Whether the other end has closed the connection, also if requests of it were not read yet."""
        poll = select.poll()
        poll.register(self.connection, select.POLLRDHUP)
        return any(events & (select.POLLHUP | select.POLLRDHUP | select.POLLERR) for _, events in poll.poll(0))


def _refuse(connection: socket.socket, reason: str) -> None:
    with connection, suppress(OSError):  # it has gone
        connection.send(encode(0, "Refused", reason))


def _listen(path: Path, *, mode: int) -> socket.socket:
    """Return a socket that listens; one that a dead chip has left is replaced. Raises TrustError."""
    try:
        return listen(path, kind=socket.SOCK_SEQPACKET, mode=mode)
    except OSError as error:
        reason = error.strerror or str(error)  # a path that is too long has no strerror
        raise TrustError(f"{path}: cannot listen: {reason}; name another one with --socket") from error


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keep other processes from serving the chip in a directory. Raises TrustError if one does."""
    try:
        lock = locked_file(directory / LOCK_FILE)
    except BlockingIOError as error:
        raise TrustError(f"{directory}: a process serves this chip already; stop it first") from error
    except OSError as error:
        raise TrustError(f"{directory}: cannot be used: {error.strerror}; make a chip with: nitro-chip init") from error
    try:
        yield
    finally:
        os.close(lock)  # the file stays, so that no two processes lock different ones
