"""The control socket of a card, and a client of it.

A Unix stream socket in the run directory. A request is a line with a JSON object, the reply another:

    {"command": "status"}                                {"ok": {"name": "card-a", ...}}
    {"command": "stats"}                                 {"ok": {"vfs": {"efa_0": {"port": {"tx_bytes": 0, ...}}}}}
    {"command": "logs", "after": 17, "wait_s": 10}       {"ok": {"records": [{"number": 18, ...}]}}
    {"command": "attest", "nonce": "00ff"}               {"ok": {"signed": true, "document": "hEShATgi..."}}
    {"command": "audit"}                                 {"ok": {"path": "/var/log/...", "records": 17, "head": "5f.."}}
    {"command": "map", "document": "hEShATgi..."}        {"ok": {"version": 12, ...}}
    {"command": "update", "manifest": "/opt/m.cbor"}     {"ok": {...}}
    {"command": "fly"}                                   {"error": "no command 'fly'; there are attest, audit, ..."}

    server = ControlServer(card, log=ring, audit=AuditLog(path), vf_uids=frozenset({1000}), alarms=alarms)
    await server.start()
    await server.serve_tcp(("10.0.0.1", 7471))           # if the control plane is on another host

Rules.
1. The kernel tells who has connected (SO_PEERCRED), and `nitro_emu.trust.policy` what they may ask for. With tenants
   the socket is open to all users (0666), as a tenant may ask for an attestation document; others are sent away.
2. Over TCP nobody is known. The policy lets through `map` alone, whose document proves its author by a signature.
3. Every request is recorded, also refused ones, before it is answered; see `nitro_emu.card.control_gate`.
4. Whatever a client sends ends at most its own connection. A line is bounded, as are the clients of each caller, so
   that a tenant keeps no administrator out.
5. Over TCP a stranger may have many addresses. One more connection than `MAX_TCP_CLIENTS` ends another: of a host that
   has sent no map which counted, if there is one, and of those the one idle longest. Such a host has
   `FIRST_MAP_TIMEOUT_S` for its map.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import os
import socket
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from netns.base.unix_sockets import BACKLOG, LineClient, listen, peer_credentials
from nitro_emu.card.control_calls import ControlCalls
from nitro_emu.card.control_gate import MAX_MAP_BYTES, MAX_REQUEST_BYTES, Caller, CallError, Gate
from nitro_emu.closing import Closing
from nitro_emu.errors import CardError, NitroError
from nitro_emu.log_ring import LogRing
from nitro_emu.run_directory import CONTROL_SOCKET, remedy
from nitro_emu.trust.alarms import Alarms
from nitro_emu.trust.audit_log import AuditLog
from nitro_emu.trust.policy import Principal, is_allowed, principal_of

if TYPE_CHECKING:
    from nitro_emu.card.card import Card

MAX_CLIENTS: Final[Mapping[Principal, int]] = {
    Principal.ROOT: 32,
    Principal.CARD_USER: 32,
    Principal.TENANT: 2,
    Principal.CONTROL_PLANE: 2,
    Principal.UNKNOWN: 0,
}
"""Clients at the same time of each caller, a user or a host; more are told so. Each command is one client."""

MAX_TCP_CLIENTS: Final = 16
"""Of all hosts together; one more ends another."""

IDLE_TIMEOUT_S: Final = 30.0
"""How long a tenant or a host may take for a request and its reply; administrators may take any time."""

FIRST_MAP_TIMEOUT_S: Final = 5.0
"""How long a host may stay connected that has sent no map which counted: as long as the control plane waits, too."""

REPLY_TIMEOUT_S: Final = 30.0
"""How long `ask` waits for a reply: longer than a request may take on a busy host."""

_ADMINISTRATORS: Final = frozenset({Principal.ROOT, Principal.CARD_USER})
_log: Final = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class _Client:
    """A connection. Times are the loop's."""

    connection: socket.socket
    caller: Caller
    since: float
    active_at: float
    """When it connected, or last was answered what it asked for."""
    refusal: str | None = None
    """Why it is sent away, if it is. It is counted no more then."""
    is_served: bool = False
    """Whether its task has begun, which closes the connection; one that is cancelled before never does."""


class CardControlServer:
    """Serves the control socket of one card, on the running event loop."""

    def __init__(
        self,
        card: Card,
        *,
        log: LogRing,
        audit: AuditLog | None = None,
        vf_uids: AbstractSet[int] = frozenset(),
        alarms: Alarms | None = None,
        image: str | None = None,
    ) -> None:
        """Prepare to serve.

        `audit`: where requests are recorded, open as long as this; default: nowhere. `vf_uids`: the tenants. `image`:
        SHA-384 of the software, for a card without a security chip; default: measured now.
        """
        self._alarms = alarms or Alarms()
        self._gate = Gate(audit=audit, alarms=self._alarms)
        self._answers = ControlCalls(card, log=log, audit=audit, image=image).answers
        self._path = card.config.run_dir / CONTROL_SOCKET
        self._vf_uids = vf_uids
        self._listeners: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._clients: dict[asyncio.Task[None], _Client] = {}

    async def start(self) -> None:
        """Listen. Raises CardError if the socket cannot be made; an old one is to be removed before."""
        try:
            listener = listen(self._path, mode=0o666 if self._vf_uids else 0o600)
        except OSError as error:
            reason = error.strerror or str(error)
            raise CardError(f"{self._path}: cannot listen: {reason}; set run_dir to another directory") from error
        self._serve_at(listener, caller_of=self._local_caller)

    async def serve_tcp(self, address: tuple[str, int]) -> int:
        """Listen for mappings over TCP, too; return the port. Raises CardError."""
        listener = _listen_tcp(address)
        self._serve_at(listener, caller_of=_caller_over_tcp)
        return int(listener.getsockname()[1])

    async def close(self) -> None:
        """End all clients, and remove the socket. May be called again."""
        if not self._listeners:
            return
        tasks = {*self._accepting, *self._clients}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for listener in self._listeners:
            if listener.family == socket.AF_UNIX:
                self._path.unlink(missing_ok=True)
            listener.close()
        self._listeners.clear()

    def _serve_at(self, listener: socket.socket, *, caller_of: Callable[[socket.socket], Caller]) -> None:
        self._listeners.append(listener)
        self._accepting.append(asyncio.create_task(self._accept(listener, caller_of=caller_of)))

    async def _accept(self, listener: socket.socket, *, caller_of: Callable[[socket.socket], Caller]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = await loop.sock_accept(listener)
            except OSError as error:  # no descriptor is left: retried, while the clients that there are go on
                _log.warning("control socket: cannot accept: %s", error.strerror)
                await asyncio.sleep(1)
                continue
            try:
                caller = caller_of(client)
            except OSError:  # it has gone
                client.close()
                continue
            self._take(client, caller=caller)
            await asyncio.sleep(0)  # accepting a connection that waits is none

    def _take(self, connection: socket.socket, *, caller: Caller) -> None:
        now = asyncio.get_running_loop().time()
        refusal = self._refusal(caller)
        if caller.host and refusal is None:
            self._make_room()
        client = _Client(connection=connection, caller=caller, since=now, active_at=now, refusal=refusal)
        task = asyncio.create_task(self._serve(client))
        self._clients[task] = client
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        client = self._clients.pop(task)
        if not client.is_served:
            client.connection.close()

    def _make_room(self) -> None:
        """End a connection over TCP if there are as many as there may be."""
        others = [(task, other) for task, other in self._clients.items() if other.caller.host and not other.refusal]
        if len(others) < MAX_TCP_CLIENTS:
            return
        task, ended = min(others, key=lambda each: (self._gate.is_proved(each[1].caller), each[1].active_at))
        ended.refusal = f"{MAX_TCP_CLIENTS} clients are connected over TCP"
        self._alarms.raise_alarm("control", f"{ended.refusal}, which is the limit: one of {ended.caller} is ended")
        task.cancel()

    def _local_caller(self, client: socket.socket) -> Caller:
        pid, uid = peer_credentials(client)
        principal = principal_of(uid, card_uid=os.geteuid(), vf_uids=self._vf_uids)
        return Caller(principal=principal, uid=uid, pid=pid)

    async def _serve(self, client: _Client) -> None:
        """Answer one client until it leaves, breaks the protocol, or takes too long."""
        client.is_served = True
        most = MAX_MAP_BYTES if is_allowed(client.caller.principal, call="map") else MAX_REQUEST_BYTES
        try:
            reader, writer = await _streams(client.connection, limit=most)
        except OSError:  # it has gone
            client.connection.close()
            return
        except asyncio.CancelledError:
            client.connection.close()
            raise
        try:
            if client.refusal is not None:
                await _send(writer, {"error": client.refusal})
                return
            while await _within(self._timeout_s(client), self._serve_request(reader, writer, client=client)):
                pass
        except CallError as error:
            with suppress(OSError):  # it has gone
                await _send(writer, {"error": str(error)})
        except (OSError, TimeoutError):
            pass  # it has gone, or is to go
        finally:
            writer.close()

    def _timeout_s(self, client: _Client) -> float | None:
        """Return how long a client may take for its next request and the reply."""
        if client.caller.principal in _ADMINISTRATORS:
            return None
        if client.caller.host and not self._gate.is_proved(client.caller):
            return client.since + FIRST_MAP_TIMEOUT_S - asyncio.get_running_loop().time()
        return IDLE_TIMEOUT_S

    async def _serve_request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, client: _Client
    ) -> bool:
        """Answer one request; return whether there was one. Raises CallError, OSError."""
        if not (line := await _line(reader)):
            return False
        reply = await self._reply(client.caller, line)
        if "ok" in reply:
            client.active_at = asyncio.get_running_loop().time()
        await _send(writer, reply)
        return True

    def _refusal(self, caller: Caller) -> str | None:
        """Return why a client is sent away, if it is."""
        most = MAX_CLIENTS[caller.principal]
        if most == 0:
            reason = f"uid {caller.uid} may not control this card; ask as root, or as its user"
            try:
                self._gate.refuse_connection(caller, reason=reason)
            except NitroError as error:
                return str(error)
            return reason
        clients = sum(1 for other in self._clients.values() if other.caller.key == caller.key and not other.refusal)
        return f"{most} clients are connected, which is the limit; try again" if clients >= most else None

    async def _reply(self, caller: Caller, line: bytes) -> dict[str, Any]:
        try:
            return {"ok": await self._gate.answer(caller, line, calls=self._answers)}
        except NitroError as error:
            return {"error": str(error)}
        except Exception as error:  # noqa: BLE001 - the card goes on, whatever is wrong in what it reports
            _log.warning("control socket: internal error", exc_info=error)
            return {"error": f"internal error: {type(error).__name__}: {error}"}


async def _within(timeout_s: float | None, work: Any) -> bool:
    async with asyncio.timeout(timeout_s):
        return bool(await work)


async def _streams(client: socket.socket, *, limit: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    opened = asyncio.open_unix_connection if client.family == socket.AF_UNIX else asyncio.open_connection
    return await opened(sock=client, limit=limit)


def _listen_tcp(address: tuple[str, int]) -> socket.socket:
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise CardError(f"{host} port {port}: cannot listen for mappings: {error.strerror}; change it") from error
    return listener


def _caller_over_tcp(client: socket.socket) -> Caller:
    address = ipaddress.ip_address(client.getpeername()[0].partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return Caller(principal=Principal.CONTROL_PLANE, host=str(mapped or address))


async def _line(reader: asyncio.StreamReader) -> bytes:
    """Return the next line; nothing at the end. Raises CallError for one that is too long."""
    try:
        line = await reader.readline()
    except ValueError:
        raise CallError(
            f"a request has at most {MAX_REQUEST_BYTES} bytes, or {MAX_MAP_BYTES} for a map, in one line"
        ) from None
    return line if line.endswith(b"\n") else b""


async def _send(writer: asyncio.StreamWriter, reply: dict[str, Any]) -> None:
    writer.write(json.dumps(reply).encode() + b"\n")
    await writer.drain()


# -- the client -------------------------------------------------------------------------------------------------


class ControlClient(Closing):
    """A connection to a card's control socket; blocking, for command lines."""

    def __init__(self, run_dir: Path) -> None:
        """Connect. Raises CardError if no card serves the directory."""
        self._run_dir = run_dir
        try:
            self._client = LineClient(run_dir / CONTROL_SOCKET, timeout_s=REPLY_TIMEOUT_S)
        except OSError as error:
            what_to_do = (
                "ask as root, or as the card's user"
                if isinstance(error, PermissionError)
                else remedy(run_dir, option="--run-dir")
            )
            raise CardError(f"{run_dir}: no card answers there ({error.strerror or error}); {what_to_do}") from error

    def ask(self, command: str, **arguments: object) -> dict[str, Any]:
        """Return the card's reply. Raises CardError with the card's reason, or if it does not answer."""
        try:
            reply = self._client.ask_untrusted({"command": command, **arguments})
        except TimeoutError:
            raise CardError(f"{self._run_dir}: the card has not answered for {REPLY_TIMEOUT_S:.0f} s") from None
        except (OSError, EOFError) as error:
            raise CardError(f"{self._run_dir}: the card has ended") from error
        except ValueError as error:
            raise CardError(f"{self._run_dir}: what answers there is no card") from error
        if isinstance(ok := reply.get("ok"), dict):
            return ok
        raise CardError(f"{self._run_dir}: {reply.get('error', 'what answers there is no card')}")

    def close(self) -> None:
        """End the connection."""
        self._client.close()


def ask(run_dir: Path, command: str, **arguments: object) -> dict[str, Any]:
    """Return the reply of the card that serves a directory to one request. Raises CardError."""
    with ControlClient(run_dir) as client:
        return client.ask(command, **arguments)
