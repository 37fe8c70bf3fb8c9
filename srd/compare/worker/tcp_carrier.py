"""Flows over kernel TCP or MPTCP: connections that stay open, each with one flow at a time.

A flow takes a connection that is idle; if there is none, it opens another, as the traffic generators of the data-centre
literature do. READY_CONNECTIONS to each receiver are open before the start. A flow begins with its number and its
length; the receiver confirms it with its number. A file has a connection that is opened when it is sent, and sendfile.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from srd.compare.worker.arrivals import Arrivals, Copy, WorkloadError
from srd.compare.worker.carrier import Account, FlowCarrier
from srd.compare.worker.plan import BLOCK_BYTES, Address, PlannedFlow
from srd.perf.payload import PayloadSource
from srd.perf.tcp_socket import make_socket, sent_by

READY_CONNECTIONS: Final = 8
"""To a receiver, if it has so many flows: more than are busy at once at usual loads."""
_HEADER: Final = struct.Struct("!QQ")  # number, bytes
_CONFIRMATION: Final = struct.Struct("!Q")
_BACKLOG: Final = 1024
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


class TcpCarrier(FlowCarrier):
    """A listening socket, and connections by receiver."""

    def __init__(
        self,
        arrivals: Arrivals,
        source: PayloadSource,
        *,
        copy: Copy | None = None,
        algorithm: str,
        mptcp: bool = False,
        bind: str | None = None,
    ) -> None:
        """`copy`: the file that is sent instead of blocks; `bind`: the local address of connections that are opened."""
        super().__init__()
        self._arrivals, self._source, self._copy = arrivals, source, copy
        self._algorithm, self._mptcp, self._bind = algorithm, mptcp, bind
        self._listener: socket.socket | None = None
        self._accepted: list[socket.socket] = []
        self._opened: list[socket.socket] = []
        self._idle: dict[Address, list[socket.socket]] = {}

    def _socket(self) -> socket.socket:
        sock = make_socket(algorithm=self._algorithm, mptcp=self._mptcp)
        sock.settimeout(0.0)
        return sock

    async def listen(self, address: str) -> int:
        """See FlowCarrier."""
        listener = self._listener = self._socket()
        listener.bind((address, 0))
        listener.listen(_BACKLOG)
        self._tasks.start(self._accept(listener))
        return int(listener.getsockname()[1])

    async def connect(self, targets: Mapping[Address, int]) -> None:
        """See FlowCarrier."""
        for target, flows in targets.items() if self._copy is None else ():
            ready = [await self._open(target) for _ in range(min(flows, READY_CONNECTIONS))]
            self._idle[target] = []
            for sock in ready:
                await self._carry(sock, PlannedFlow(0, target, 1, 0.0))
            self._idle[target] = ready

    async def _open(self, target: Address) -> socket.socket:
        sock = self._socket()
        self._opened.append(sock)
        if self._bind is not None:
            sock.bind((self._bind, 0))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await asyncio.get_running_loop().sock_connect(sock, target)
        except OSError as error:
            raise WorkloadError(f"{target[0]}:{target[1]}: {os.strerror(error.errno or 0)}") from None
        return sock

    async def send(self, flow: PlannedFlow) -> None:
        """See FlowCarrier."""
        idle = self._idle.setdefault(flow.to, [])
        sock = idle.pop() if idle else await self._open(flow.to)
        await self._carry(sock, flow)
        idle.append(sock)

    async def _carry(self, sock: socket.socket, flow: PlannedFlow) -> None:
        loop = asyncio.get_running_loop()
        try:
            header = _HEADER.pack(flow.number, flow.size_bytes)
            if self._copy is not None:
                await loop.sock_sendall(sock, header)
                await asyncio.to_thread(_send_file, sock, self._copy.source)
            for index, length in flow.blocks() if self._copy is None else ():
                offset = self._source.offset(flow.number + index)
                data: bytes | memoryview = self._source.array[offset : offset + length].data
                await loop.sock_sendall(sock, header + bytes(data) if index == 0 else data)
            (number,) = _CONFIRMATION.unpack(await _exactly(sock, _CONFIRMATION.size))
        except OSError as error:
            raise WorkloadError(f"flow {flow.number}: {error.strerror or error}") from None
        if number != flow.number:
            raise WorkloadError(f"flow {flow.number}: the receiver has confirmed flow {number}")

    def account(self) -> Account:
        """See FlowCarrier."""
        sent = [sent_by(sock) for sock in self._opened if _is_connected(sock)]
        return Account(
            sum(each.bytes_sent for each in sent),
            sum(each.bytes_retransmitted for each in sent),
            min((each.subflows for each in sent), default=None) if self._mptcp else None,
        )

    async def close(self) -> None:
        """See FlowCarrier."""
        await super().close()
        for sock in (*self._opened, *self._accepted):
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                sock.shutdown(socket.SHUT_RDWR)  # ends a thread that sends a file
            sock.close()
        if self._listener is not None:
            self._listener.close()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            sock, _ = await loop.sock_accept(listener)
            self._accepted.append(sock)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._tasks.start(self._receive(sock))

    async def _receive(self, sock: socket.socket) -> None:
        """Receive flow after flow of one connection."""
        buffer = memoryview(bytearray(BLOCK_BYTES))
        loop = asyncio.get_running_loop()
        with suppress(OSError):  # its sender has ended, which says so itself
            while True:
                number, size_bytes = _HEADER.unpack(await _exactly(sock, _HEADER.size))
                got_bytes = 0
                while got_bytes < size_bytes:
                    block, at = divmod(got_bytes, BLOCK_BYTES)
                    wanted = min(BLOCK_BYTES - at, size_bytes - got_bytes)
                    count = await loop.sock_recv_into(sock, buffer[:wanted])
                    if not count:
                        return
                    self._arrivals.arrived(number, block=block, at=at, data=buffer[:count])
                    got_bytes += count
                await loop.sock_sendall(sock, _CONFIRMATION.pack(number))


def _send_file(sock: socket.socket, path: Path) -> None:
    """Send all of a file; blocks."""
    sock.settimeout(None)
    try:
        with path.open("rb") as file:
            sock.sendfile(file)
    finally:
        sock.settimeout(0.0)


async def _exactly(sock: socket.socket, size_bytes: int) -> bytes:
    """Return the next bytes. Raises ConnectionResetError at the end of the connection."""
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < size_bytes:
        more = await loop.sock_recv(sock, size_bytes - len(data))
        if not more:
            raise ConnectionResetError("the other end has closed the connection")
        data += more
    return data


def _is_connected(sock: socket.socket) -> bool:
    try:
        sock.getpeername()
    except OSError:
        return False
    return True
