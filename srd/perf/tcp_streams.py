"""TCP's and MPTCP's streams: blocking sockets in threads, which release the interpreter while the kernel copies.

A connection begins with the test's cookie and the number of the stream, so that the server knows it. A thread that
blocks in the kernel is ended by a shutdown of its socket.
"""

from __future__ import annotations

import asyncio
import hmac
import socket
import struct
import threading
import time
import typing
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

import numpy as np
import numpy.typing as npt

from netns.base.tasks import Tasks
from srd.perf.errors import PerfError, UnavailableError
from srd.perf.parameters import TCP_BLOCK_BYTES, Protocol
from srd.perf.payload import PayloadSource
from srd.perf.stream import Address, Fail, PerfStream, SendWork, StreamSnapshot
from srd.perf.tcp_socket import flows_of, make_socket

COOKIE_CHARACTERS: Final = 36
"""As many as iperf3's has."""
_GREETING: Final = struct.Struct(f"!{COOKIE_CHARACTERS}sH")
GREETING_WITHIN_S: Final = 5.0
MAX_GREETERS: Final = 256
"""Connections that have not said yet what they are."""
STOP_WITHIN_S: Final = 2.0
"""How long a thread that was stopped may take for the block that it is writing."""


class Connected(typing.Protocol):
    """What a test over kernel sockets says of its connections."""

    @property
    def protocol(self) -> Protocol:
        """TCP or MPTCP."""

    @property
    def congestion(self) -> str:
        """Name of the congestion control."""

    @property
    def count(self) -> int:
        """Number of connections."""


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def connect(parameters: Connected, *, address: Address, cookie: str, stream: int, bind: str | None) -> socket.socket:
    """Open the connection of a stream; blocks. Raises PerfError."""
    sock = _socket(parameters, host=address[0])
    try:
        if bind is not None:
            sock.bind((bind, 0))
        sock.settimeout(GREETING_WITHIN_S)
        sock.connect(address)
        sock.sendall(_GREETING.pack(cookie.encode(), stream))
        sock.settimeout(None)
    except OSError as error:
        sock.close()
        raise PerfError(
            f"{parameters.protocol} to {address[0]} port {address[1]}: {error.strerror or error}"
        ) from error
    return sock


def _socket(parameters: Connected, *, host: str) -> socket.socket:
    return make_socket(
        algorithm=parameters.congestion, mptcp=parameters.protocol is Protocol.MPTCP, family=_family(host)
    )


def read(sock: socket.socket) -> Iterator[npt.NDArray[np.uint8]]:
    """Yield what arrives until the connection ends, in memory that is used again; blocks. Raises OSError."""
    memory = bytearray(TCP_BLOCK_BYTES)
    array = np.frombuffer(memory, np.uint8)
    while count := sock.recv_into(memory):
        yield array[:count]


class Acceptor:
    """The server's end: a listener that is open during a test, since MPTCP's further subflows need it, too."""

    def __init__(self, parameters: Connected, *, address: Address, cookie: str) -> None:
        """Listen. Raises PerfError."""
        self._cookie = cookie.encode()
        try:
            self._listener = _socket(parameters, host=address[0])
        except UnavailableError as error:
            raise UnavailableError(f"at the server: {error}") from error
        self._tasks = Tasks()  # one accepts, the others have a connection each that has not said what it is for
        self._sockets: dict[int, socket.socket] = {}
        self._count = parameters.count
        self._complete = asyncio.Event()
        try:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind(address)
            self._listener.listen(2 * parameters.count)
        except OSError as error:
            self._listener.close()
            raise PerfError(
                f"the server cannot listen on TCP port {address[1]} ({error.strerror}), perhaps since iperf3 -s does"
            ) from error
        self._listener.settimeout(0)

    def start(self) -> None:
        """Begin to accept."""
        self._tasks.start(self._accept())

    async def sockets(self) -> list[socket.socket]:
        """Return the connections of all streams once they are there; whoever gets them closes them."""
        await self._complete.wait()
        taken, self._sockets = self._sockets, {}
        return [taken[number] for number in range(self._count)]

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            sock, _ = await loop.sock_accept(self._listener)
            if len(self._tasks) > MAX_GREETERS:
                sock.close()
                continue
            self._tasks.start(self._greet(sock))

    async def _greet(self, sock: socket.socket) -> None:
        """Take a connection that knows the cookie; close any other."""
        try:
            async with asyncio.timeout(GREETING_WITHIN_S):
                number = await self._stream_untrusted(sock)
        except (TimeoutError, OSError, PerfError):
            sock.close()
            return
        except BaseException:
            sock.close()
            raise
        sock.settimeout(None)
        self._sockets[number] = sock
        if len(self._sockets) == self._count:
            self._complete.set()

    async def _stream_untrusted(self, sock: socket.socket) -> int:
        """Return the stream that a connection is for. Raises PerfError, OSError."""
        sock.settimeout(0)
        greeting, loop = b"", asyncio.get_running_loop()
        while len(greeting) < _GREETING.size:
            part = await loop.sock_recv(sock, _GREETING.size - len(greeting))
            if not part:
                raise PerfError("a connection without a greeting")
            greeting += part
        cookie, number = _GREETING.unpack(greeting)
        if not hmac.compare_digest(cookie, self._cookie) or number >= self._count or number in self._sockets:
            raise PerfError("a connection of no stream")
        return int(number)

    def close(self) -> None:
        """Listen no more, and close what nobody has taken."""
        self._tasks.cancel()
        self._listener.close()
        for sock in self._sockets.values():
            sock.close()


class TcpStream(PerfStream):
    """A connection and its thread."""

    def __init__(self, number: int, *, sock: socket.socket, fail: Fail) -> None:
        super().__init__(number)
        self._socket = sock
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._closing = False
        self._done = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=f"stream-{number}", daemon=True)
        try:
            own, other = sock.getsockname(), sock.getpeername()
        except OSError as error:
            raise PerfError(f"stream {number + 1}: the connection has ended before the test") from error
        self._ends = (own[0], own[1]), (other[0], other[1])

    @property
    def ends(self) -> tuple[Address, Address]:
        """Addresses of the connection."""
        return self._ends

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def _run(self) -> None:
        try:
            self._move()
        except (OSError, PerfError) as error:
            if not self._closing:
                text = error if isinstance(error, PerfError) else PerfError(f"stream {self.number + 1}: {error}")
                self._tell(self._fail, text)
        self._tell(self._done.set)

    def _tell(self, call: Callable[..., object], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(call, *arguments)

    def _move(self) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        """End the connection and its thread."""
        self._closing = self._stopped = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        try:
            if self._thread.is_alive():
                await self._done.wait()
        finally:
            self._socket.close()


class TcpSender(TcpStream):
    """Writes blocks."""

    sends = True

    def __init__(self, number: int, *, sock: socket.socket, work: SendWork, fail: Fail) -> None:
        super().__init__(number, sock=sock, fail=fail)
        self._work = work
        self._wake = threading.Event()

    def _move(self) -> None:
        with memoryview(self._work.source.region) as memory:
            at, end = 0, self._work.source.size_bytes
            while not self._stopped:
                if self._work.pace is not None and (delay_s := self._work.pace.delay_s(time.monotonic())):
                    self._wake.wait(delay_s)
                    continue
                if not (size := self._work.budget.take(self._work.block_bytes)):
                    break
                first = min(size, end - at)
                self._socket.sendall(memory[at : at + first])
                if first < size:
                    self._socket.sendall(memory[: size - first])
                at = (at + size) % end
                self.size_bytes += size
                if self._work.pace is not None:
                    self._work.pace.charge(size, now=time.monotonic())
        self._socket.shutdown(socket.SHUT_WR)  # counted and compared until here

    def stop(self) -> None:
        """Begin no further block."""
        super().stop()
        self._wake.set()

    async def finished(self) -> None:
        """Wait until all blocks are written; one that was begun when it was stopped may take STOP_WITHIN_S."""
        while not self._done.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_WITHIN_S):
                    await self._done.wait()
                    return
            if self._stopped:
                self._closing = True
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def snapshot(self) -> StreamSnapshot:
        """Return the counters; those of MPTCP's subflows together, with the mean of their round trips."""
        try:
            flows = flows_of(self._socket)
        except OSError:
            flows = []
        count = max(len(flows), 1)
        return StreamSnapshot(
            self.size_bytes,
            retransmits=sum(flow.retransmits for flow in flows),
            cwnd_bytes=sum(flow.cwnd_bytes for flow in flows),
            snd_wnd_bytes=max((flow.snd_wnd_bytes for flow in flows), default=0),
            rtt_us=sum(flow.rtt_us for flow in flows) // count,
            rttvar_us=sum(flow.rttvar_us for flow in flows) // count,
            pmtu_bytes=min((flow.pmtu_bytes for flow in flows), default=0),
            path_packets=tuple(flow.segments_sent for flow in flows),
        )


class TcpReceiver(TcpStream):
    """Reads until the other end has shut down."""

    sends = False

    def __init__(self, number: int, *, sock: socket.socket, source: PayloadSource | None, fail: Fail) -> None:
        """Compare what arrives with `source` if there is one."""
        super().__init__(number, sock=sock, fail=fail)
        self._source = source

    def _move(self) -> None:
        source, of = self._source, f"stream {self.number + 1}"
        for arrived in read(self._socket):
            if source is not None:
                source.require_stream(arrived, done_bytes=self.size_bytes, period_bytes=source.size_bytes, of=of)
            self.size_bytes += len(arrived)
