"""A relay on loopback that loses and delays datagrams, for tests on real sockets that need a bad network."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from functools import partial

HOST = "127.0.0.1"
Address = tuple[str, int]


class Relay:
    """Between one server and any client ports: each gets a port of its own towards the server, as behind a NAT."""

    def __init__(self, server_port: int, *, rng: random.Random, loss: float, delayed: float) -> None:
        self._server = (HOST, server_port)
        self._rng, self._loss, self._delayed = rng, loss, delayed
        self._loop = asyncio.get_running_loop()
        self._backs: dict[Address, socket.socket] = {}
        self.lost = 0
        self._front = self._open(self._from_client)
        self.port: int = self._front.getsockname()[1]

    def _open(self, on_datagram: Callable[[bytes, Address], None], *, host: str = HOST) -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.settimeout(0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        sock.bind((host, 0))
        self._loop.add_reader(sock.fileno(), self._read, sock, on_datagram)
        return sock

    def _read(self, sock: socket.socket, on_datagram: Callable[[bytes, Address], None]) -> None:
        for _ in range(64):
            try:
                data, address = sock.recvfrom(65536)
            except BlockingIOError:
                return
            on_datagram(data, address)

    def _from_client(self, data: bytes, client: Address) -> None:
        back = self._backs.get(client)
        if back is None:
            back = self._backs[client] = self._open(partial(self._from_server, client))
        self._pass(back, data, self._server)

    def _from_server(self, client: Address, data: bytes, _: Address) -> None:
        self._pass(self._front, data, client)

    def _pass(self, sock: socket.socket, data: bytes, to: Address) -> None:
        luck = self._rng.random()
        if luck < self._loss:
            self.lost += 1
        elif luck < self._loss + self._delayed:
            self._loop.call_later(self._rng.uniform(0, 0.004), self._send, sock, data, to)
        else:
            self._send(sock, data, to)

    def _send(self, sock: socket.socket, data: bytes, to: Address) -> None:
        if sock.fileno() >= 0:
            with suppress(BlockingIOError, ConnectionRefusedError):
                sock.sendto(data, to)

    def _close_backs(self) -> None:
        for sock in self._backs.values():
            self._close_socket(sock)
        self._backs.clear()

    def _close_socket(self, sock: socket.socket) -> None:
        self._loop.remove_reader(sock.fileno())
        sock.close()

    def close(self) -> None:
        self._close_socket(self._front)
        self._close_backs()


class Tap(Relay):
    """Lets all datagrams pass, and keeps them."""

    def __init__(self, server_port: int) -> None:
        super().__init__(server_port, rng=random.Random(0), loss=0, delayed=0)
        self.seen: list[tuple[bytes, Address]] = []
        """What passed, and whereto."""

    def _pass(self, sock: socket.socket, data: bytes, to: Address) -> None:
        self.seen.append((data, to))
        super()._pass(sock, data, to)


@asynccontextmanager
async def relay(server_port: int, *, seed: int, loss: float = 0.02, delayed: float = 0.2) -> AsyncIterator[Relay]:
    """Give a relay to a server of this machine; connect to its `port` instead."""
    opened = Relay(server_port, rng=random.Random(seed), loss=loss, delayed=delayed)
    try:
        yield opened
    finally:
        opened.close()


@asynccontextmanager
async def tap(server_port: int) -> AsyncIterator[Tap]:
    """Give a relay that keeps what passes."""
    with closing(Tap(server_port)) as opened:
        yield opened
