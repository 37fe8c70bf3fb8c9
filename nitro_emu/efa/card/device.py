"""A virtual function of kind EFA at its Unix socket, where programs of its user open it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from netns.base.unix_sockets import listen, peer_credentials
from nitro_emu.efa.abi.enums import AenqGroup
from nitro_emu.efa.abi.memory import CardState
from nitro_emu.efa.card.config import EfaConfig
from nitro_emu.efa.card.connection import ProgramConnection
from nitro_emu.efa.card.function import EfaFunction
from nitro_emu.efa.card.poller import Poller
from nitro_emu.efa.card.user_context import UserContext
from nitro_emu.errors import CardError
from nitro_emu.peers.vf_trust import VfTrust


class EfaDevice:
    """The socket, the programs that have the device open, and what they use."""

    def __init__(
        self, config: EfaConfig, *, trust: VfTrust, poller: Poller, path: Path, on_failure: Callable[[str], None]
    ) -> None:
        """`path`: of the socket; `on_failure` is called with the reason when it has failed by an internal error."""
        self.vf = EfaFunction(config, trust=trust, poller=poller, on_failure=on_failure)
        self.path = path
        self.connections: set[ProgramConnection] = set()
        self._allowed = {0, os.getuid() if config.uid is None else config.uid}
        self._sock: socket.socket | None = None

    def start(self) -> None:
        """Open the engine, and listen. Raises CardError."""
        self.vf.start()
        uid = self.vf.config.uid
        try:
            self._sock = listen(self.path, kind=socket.SOCK_SEQPACKET, takes_descriptors=True)
            self.path.chmod(_mode_for(self.path, uid=uid))  # the credentials are checked in any case
        except OSError as error:
            raise CardError(f"{self.path}: cannot listen: {error.strerror or error}") from error
        asyncio.get_running_loop().add_reader(self._sock.fileno(), self._on_connecting, self._sock)

    def _on_connecting(self, listener: socket.socket) -> None:
        if self.vf.closer.is_behind:
            self._pause("what programs have sent is not closed yet", listener=listener)
            return
        try:
            sock, _ = listener.accept()
        except OSError as error:
            if not isinstance(error, BlockingIOError):
                self.vf.device.alloc_ucontext_err += 1
                self._pause(error.strerror, listener=listener)
            return
        sock.setblocking(False)  # noqa: FBT003 - the library's signature
        pid, uid = peer_credentials(sock)
        if uid not in self._allowed or len(self.connections) >= self.vf.config.max_connections:
            self.vf.log.warning("pid %d of user %d may not open the device, or too many have", pid, uid)
            self.vf.device.alloc_ucontext_err += 1
            self.vf.closer.close_untrusted(sock.detach())
            return
        self.vf.log.info("pid %d has opened the device", pid)
        connection = ProgramConnection(sock, UserContext(self.vf, pid), on_closed=self._on_closed)
        self.connections.add(connection)

    def _pause(self, reason: str | None, *, listener: socket.socket) -> None:
        """Accept nothing for a while: the socket stays readable."""
        self.vf.log.error("a program cannot open the device: %s", reason)
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener.fileno())
        loop.call_later(0.1, self._resume)

    def _resume(self) -> None:
        if (sock := self._sock) is not None:
            asyncio.get_running_loop().add_reader(sock.fileno(), self._on_connecting, sock)

    def _on_closed(self, connection: ProgramConnection) -> None:
        self.connections.discard(connection)
        self.vf.log.info("pid %d has closed the device", connection.context.pid)

    def _announce(self, state: CardState, *, group: AenqGroup) -> None:
        """Show the card's state to all programs, with an event."""
        for connection in self.connections:
            if (uar := connection.context.uar) is not None:
                uar.events.set_state(state)
                uar.events.push(group)

    def keep_alive(self) -> None:
        """Send the keep-alive event to the programs that want it."""
        for connection in self.connections:
            if (uar := connection.context.uar) is not None:
                uar.events.push(AenqGroup.KEEP_ALIVE)

    def on_new_mapping(self) -> None:
        """End the peers that a new mapping does not allow any more."""
        self.vf.endpoint.on_new_mapping()

    # -- the end ------------------------------------------------------------------------------------------------------

    def _stop_accepting(self) -> None:
        if (sock := self._sock) is not None:
            self._sock = None
            asyncio.get_running_loop().remove_reader(sock.fileno())
            self.vf.closer.close_untrusted(sock.detach())  # there may be connections that wait
            with suppress(FileNotFoundError):
                self.path.unlink()

    async def drain(self) -> None:
        """Let no further program open the device, tell those that have, and wait for the requests in progress."""
        self._stop_accepting()
        self._announce(CardState.DRAINING, group=AenqGroup.NOTIFICATION)
        await self.vf.requester.idle.wait()

    def keep(self) -> None:
        """Keep nothing over an update: programs open the device again."""

    def fail(self) -> None:
        """Tell the programs that the device has failed, and close it."""
        with ExitStack() as stack:
            stack.callback(self.close)
            self._announce(CardState.FATAL, group=AenqGroup.FATAL_ERROR)

    def close(self) -> None:
        """End all connections, and the virtual function."""
        with ExitStack() as stack:
            stack.callback(self.vf.close)
            for connection in list(self.connections):
                stack.callback(connection.close)
            stack.callback(self._stop_accepting)

    # -- what it says of itself ---------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Return what it is reached by, and by whom it is used."""
        return {
            "gid": self.vf.gid.hex(":", 2),
            "mtu_bytes": self.vf.mtu_bytes,
            "security": self.vf.security_mode,
            "programs": sorted(connection.context.pid for connection in self.connections),
            "peers": len(self.vf.engine().core.open_peers),
        }

    def stats(self) -> dict[str, Any]:
        """Return its counters."""
        vf, tables = self.vf, self.vf.tables
        return {
            "port": asdict(vf.counters()),
            "device": asdict(vf.device),
            "qkey_viol": vf.responder.qkey_violations,
            "bytes_copied": vf.bytes_copied,
            "vpc": asdict(vf.tenancy.counters),
            "allowance": asdict(vf.endpoint.allowance_counters()),
            "security": asdict(vf.endpoint.security_counters()),
            "resources": {
                "qps": len(tables.queue_pairs),
                "cqs": len(tables.completion_queues),
                "pds": len(tables.domains),
                "mrs": len(tables.memory),
                "ahs": len(tables.handles),
                "registered_bytes": tables.registered_bytes,
            },
        }


def _mode_for(path: Path, *, uid: int | None) -> int:
    """Return the mode of a socket that a user may connect to, to whom it is given if that can be."""
    if uid is None:
        return 0o600
    try:
        os.chown(path, uid, -1)
    except OSError:  # not as root, or not as the root of that user
        return 0o666
    return 0o600
