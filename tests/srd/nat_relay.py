"""A NAT on loopback for tests on real sockets: `tests.nat.Nat` with a UDP socket for each external address."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import cast

from tests.nat import Nat

INSIDE, OUTSIDE = "127.0.0.1", "127.0.0.2"
Address = tuple[str, int]


class NatRelay:
    """Between one server and the clients that connect to `port` instead; the server sees them at `outside`."""

    def __init__(self, server: Address, *, lifetime_s: float) -> None:
        self.outside = OUTSIDE
        self.carried: dict[Address, list[int]] = {}
        """Datagrams by external address: to the server, and from it."""
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._sockets: dict[Address, socket.socket] = {}
        self.nat = Nat(self._open_external, lifetime_s=lifetime_s)
        self._front = self._socket(INSIDE)
        self.port: int = self._front.getsockname()[1]
        self._loop.add_reader(self._front.fileno(), self._from_clients)

    @staticmethod
    def _socket(host: str) -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.settimeout(0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        sock.bind((host, 0))
        return sock

    def _open_external(self) -> Address:
        sock = self._socket(self.outside)
        external: Address = sock.getsockname()
        self._sockets[external] = sock
        self.carried[external] = [0, 0]
        self._loop.add_reader(sock.fileno(), self._from_server, external)
        return external

    def _from_clients(self) -> None:
        with suppress(BlockingIOError):
            for _ in range(64):
                data, client = self._front.recvfrom(65536)
                external = cast(Address, self.nat.outbound(client, self._server, now=self._loop.time()))
                self.carried[external][0] += 1
                self._send(self._sockets[external], data, self._server)

    def _from_server(self, external: Address) -> None:
        with suppress(BlockingIOError):
            for _ in range(64):
                data, remote = self._sockets[external].recvfrom(65536)
                client = self.nat.inbound(external, remote, now=self._loop.time())
                if client is not None:
                    self.carried[external][1] += 1
                    self._send(self._front, data, cast(Address, client))

    @staticmethod
    def _send(sock: socket.socket, data: bytes, to: Address) -> None:
        with suppress(BlockingIOError, ConnectionRefusedError):
            sock.sendto(data, to)

    def rebind(self, *, outside: str = OUTSIDE) -> None:
        """Restart the NAT: it forgets all mappings, and closes their ports; `outside` is its address from then on."""
        self.outside = outside
        self.nat.rebind()
        self.carried.clear()
        self._close_external()

    def _close_external(self) -> None:
        for sock in self._sockets.values():
            self._loop.remove_reader(sock.fileno())
            sock.close()
        self._sockets.clear()

    def close(self) -> None:
        self._loop.remove_reader(self._front.fileno())
        self._front.close()
        self._close_external()


@asynccontextmanager
async def nat_relay(server_port: int, *, lifetime_s: float = 30.0) -> AsyncIterator[NatRelay]:
    """Give a NAT in front of a server of this machine; connect to its `port` instead."""
    opened = NatRelay((INSIDE, server_port), lifetime_s=lifetime_s)
    try:
        yield opened
    finally:
        opened.close()
