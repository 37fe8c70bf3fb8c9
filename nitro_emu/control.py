"""The control socket of a card, and a client of it.

A Unix stream socket in the run directory. A request is a line with a JSON object, the reply another:

    {"command": "status"}                                {"ok": {"name": "card-a", ...}}
    {"command": "stats"}                                 {"ok": {"vfs": {"efa_0": {"port": {"tx_bytes": 0, ...}}}}}
    {"command": "logs", "after": 17, "wait_s": 10}       {"ok": {"records": [{"number": 18, ...}]}}
    {"command": "attest", "nonce": "00ff"}               {"ok": {"signed": false, ...}}
    {"command": "fly"}                                   {"error": "no command 'fly'; there are attest, logs, ..."}

Rules.
1. Only root and the card's user are served: the kernel tells who has connected (SO_PEERCRED).
2. Whatever a client sends ends at most its own connection. A line is bounded, as are the clients.
3. Nothing here changes the card.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

from nitro_emu.attestation import MAX_NONCE_BYTES, image_sha384, unsigned_statement
from nitro_emu.config import CONTROL_SOCKET, CardConfig
from nitro_emu.errors import CardError, NitroError
from nitro_emu.log_ring import LogRing

MAX_REQUEST_BYTES: Final = 64 << 10
MAX_REPLY_BYTES: Final = 16 << 20
"""The statistics of 256 VFs take 400 KiB, 1,000 records of the longest messages 4 MiB."""

MAX_CLIENTS: Final = 32
"""Clients at the same time; more are told so. Only root and one user connect, and each command is one client."""

MAX_WAIT_S: Final = 10.0
"""How long a request for log records waits for one: so often a client that follows the log asks again."""

REPLY_TIMEOUT_S: Final = 30.0
"""How long `ask` waits for a reply: longer than a request may take on a busy host."""

_BACKLOG: Final = 64
_UCRED: Final = struct.Struct("iII")  # pid, uid, gid
_log: Final = logging.getLogger(__name__)


class ControlledCard(Protocol):
    """What a card offers to the control socket."""

    @property
    def config(self) -> CardConfig:
        """Its settings."""

    def status(self) -> dict[str, Any]:
        """Return its state and that of its VFs."""

    def stats(self) -> dict[str, Any]:
        """Return {"vfs": {name: {"port": {...}, "device": {...}, "resources": {...}, "qkey_viol": n ...}}}."""


class RequestError(NitroError):
    """A request is malformed, or asks for what there is not; the client gets the message."""


class ControlServer:
    """Serves the control socket of one card, on the running event loop."""

    def __init__(self, card: ControlledCard, *, log: LogRing, image: str | None = None) -> None:
        """Prepare to serve. `image`: SHA-384 of the software; default: measured now, of the files as they are now."""
        self._card = card
        self._log_ring = log
        self._image = image_sha384() if image is None else image
        self._path = card.config.run_dir / CONTROL_SOCKET
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._allowed_uids = {0, os.geteuid()}
        self._commands: Mapping[str, Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]] = {
            "attest": self._attest,
            "logs": self._logs,
            "stats": self._stats,
            "status": self._status,
        }

    async def start(self) -> None:
        """Listen. Raises CardError if the socket cannot be made; an old one is to be removed before."""
        self._listener = _listen(self._path)
        self._accepting = asyncio.create_task(self._accept(self._listener))

    async def close(self) -> None:
        """End all clients, and remove the socket. May be called again."""
        if self._listener is None or self._accepting is None:
            return
        tasks = {self._accepting, *self._clients}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listener.close()
        self._listener = None
        self._path.unlink(missing_ok=True)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = await loop.sock_accept(listener)
            except OSError as error:  # no descriptor is left: retried, while the clients that there are go on
                _log.warning("control socket: cannot accept: %s", error.strerror)
                await asyncio.sleep(1)
                continue
            task = asyncio.create_task(self._serve(client))
            self._clients.add(task)
            task.add_done_callback(self._clients.discard)

    async def _serve(self, client: socket.socket) -> None:
        """Answer one client until it leaves, or breaks the protocol."""
        try:
            uid = peer_uid(client)
            reader, writer = await asyncio.open_unix_connection(sock=client, limit=MAX_REQUEST_BYTES)
        except OSError:  # it has gone
            client.close()
            return
        try:
            if (refusal := self._refusal(uid)) is not None:
                await _send(writer, {"error": refusal})
                return
            while line := await _line(reader):
                await _send(writer, await self._reply(line))
        except RequestError as error:
            with suppress(OSError):  # it has gone
                await _send(writer, {"error": str(error)})
        except OSError:
            pass  # it has gone
        finally:
            writer.close()

    def _refusal(self, uid: int) -> str | None:
        if uid not in self._allowed_uids:
            return f"uid {uid} may not control this card; ask as root, or as its user"
        if len(self._clients) > MAX_CLIENTS:
            return f"{MAX_CLIENTS} clients are connected, which is the limit; try again"
        return None

    async def _reply(self, line: bytes) -> dict[str, Any]:
        try:
            return {"ok": await self._answer(_request_untrusted(line))}
        except NitroError as error:
            return {"error": str(error)}
        except Exception as error:  # noqa: BLE001 - the card goes on, whatever is wrong in what it reports
            _log.warning("control socket: internal error", exc_info=error)
            return {"error": f"internal error: {type(error).__name__}: {error}"}

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        command = request.pop("command", None)
        answer = self._commands.get(command) if isinstance(command, str) else None
        if answer is None:
            raise RequestError(f"no command {command!r:.100}; there are {', '.join(self._commands)}")
        return await answer(request)

    # -- commands -----------------------------------------------------------------------------------------------

    async def _status(self, arguments: dict[str, Any]) -> dict[str, Any]:
        _only(arguments)
        return self._card.status()

    async def _stats(self, arguments: dict[str, Any]) -> dict[str, Any]:
        _only(arguments)
        return self._card.stats()

    async def _logs(self, arguments: dict[str, Any]) -> dict[str, Any]:
        _only(arguments, "after", "wait_s")
        after, wait_s = arguments.get("after", 0), arguments.get("wait_s", 0)
        if not isinstance(after, int) or isinstance(after, bool):
            raise RequestError(f"after: {after!r:.100} is no number of a record; give an integer")
        if not isinstance(wait_s, int | float) or isinstance(wait_s, bool) or not 0 <= wait_s <= MAX_WAIT_S:
            raise RequestError(f"wait_s: {wait_s!r:.100} is not between 0 and {MAX_WAIT_S}")
        found = await self._log_ring.newer(after, timeout_s=wait_s) if wait_s else self._log_ring.after(after)
        return {"records": found}

    async def _attest(self, arguments: dict[str, Any]) -> dict[str, Any]:
        _only(arguments, "nonce")
        nonce = arguments.get("nonce")
        if nonce is not None:
            check_nonce_untrusted(nonce)
        return unsigned_statement(image=self._image, configuration=self._card.config.sha384, nonce=nonce)


def check_nonce_untrusted(nonce: object) -> None:
    """Check that a nonce is hexadecimal, and not too long. Raises RequestError."""
    digits = nonce if isinstance(nonce, str) else "?"
    if len(digits) % 2 or len(digits) > 2 * MAX_NONCE_BYTES or not set(digits) <= set("0123456789abcdefABCDEF"):
        raise RequestError(f"nonce: {nonce!r:.100} is not up to {MAX_NONCE_BYTES} bytes in hexadecimal")


def _only(arguments: dict[str, Any], *known: str) -> None:
    if unknown := arguments.keys() - set(known):
        raise RequestError(f"no argument {min(unknown)!r:.100}; there are {', '.join(known) or 'none'}")


def _request_untrusted(line: bytes) -> dict[str, Any]:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"not JSON: {error!s:.200}") from None
    if not isinstance(request, dict):
        raise RequestError("a request is a JSON object")
    return request


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise CardError(f"{path}: cannot listen: {error.strerror}; set run_dir to another directory") from error
    finally:
        os.umask(before)
    return listener


def peer_uid(client: socket.socket) -> int:
    """Return the user who connected, as the kernel says."""
    _, uid, _ = _UCRED.unpack(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return int(uid)


async def _line(reader: asyncio.StreamReader) -> bytes:
    """Return the next line; nothing at the end. Raises RequestError for one that is too long."""
    try:
        line = await reader.readline()
    except ValueError:
        raise RequestError(f"a request has at most {MAX_REQUEST_BYTES} bytes, in one line") from None
    return line if line.endswith(b"\n") else b""


async def _send(writer: asyncio.StreamWriter, reply: dict[str, Any]) -> None:
    writer.write(json.dumps(reply).encode() + b"\n")
    await writer.drain()


# -- the client -------------------------------------------------------------------------------------------------


class ControlClient:
    """A connection to a card's control socket; blocking, for command lines."""

    def __init__(self, run_dir: Path) -> None:
        """Connect. Raises CardError if no card serves the directory."""
        self._run_dir = run_dir
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(REPLY_TIMEOUT_S)
        try:
            self._socket.connect(str(run_dir / CONTROL_SOCKET))
        except OSError as error:
            self._socket.close()
            remedy = (
                "ask as root, or as the card's user"
                if isinstance(error, PermissionError)
                else "start one with nitro-card run, or name its directory with --run-dir"
            )
            raise CardError(f"{run_dir}: no card answers there ({error.strerror or error}); {remedy}") from error
        self._replies = self._socket.makefile("rb")

    def ask(self, command: str, **arguments: object) -> dict[str, Any]:
        """Return the card's reply. Raises CardError with the card's reason, or if it does not answer."""
        try:
            self._socket.sendall(json.dumps({"command": command, **arguments}).encode() + b"\n")
            line = self._replies.readline(MAX_REPLY_BYTES)
        except TimeoutError:
            raise CardError(f"{self._run_dir}: the card has not answered for {REPLY_TIMEOUT_S:.0f} s") from None
        except OSError as error:
            raise CardError(f"{self._run_dir}: the card has ended ({error.strerror})") from error
        return _ok_untrusted(line, run_dir=self._run_dir)

    def close(self) -> None:
        """End the connection."""
        self._replies.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def ask(run_dir: Path, command: str, **arguments: object) -> dict[str, Any]:
    """Return the reply of the card that serves a directory to one request. Raises CardError."""
    with ControlClient(run_dir) as client:
        return client.ask(command, **arguments)


def _ok_untrusted(line: bytes, *, run_dir: Path) -> dict[str, Any]:
    if not line.endswith(b"\n"):
        raise CardError(f"{run_dir}: the card has ended" if not line else f"{run_dir}: a reply was cut off")
    try:
        reply = json.loads(line)
    except (ValueError, RecursionError):
        reply = None
    if not isinstance(reply, dict):
        raise CardError(f"{run_dir}: what answers there is no card")
    if isinstance(ok := reply.get("ok"), dict):
        return ok
    raise CardError(f"{run_dir}: {reply.get('error', 'what answers there is no card')}")
