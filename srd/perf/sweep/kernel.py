"""TCP's part of latency and rate: blocking sockets in threads, a connection for each size."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from srd.perf.errors import PerfError
from srd.perf.payload import PayloadSource, Shifted
from srd.perf.stream import Fail
from srd.perf.sweep.plan import Sweep
from srd.perf.sweep.progress import POINTS_OF_A_SERIES, CompletionSeries, MessageQuota, Span
from srd.perf.sweep.roles import PartCheck, Role
from srd.perf.tcp_streams import read

_COUNT: Final = struct.Struct("!Q")
_TICK_S: Final = 0.001
_T = TypeVar("_T")


async def stoppable(work: Callable[[], _T], *, stop: Callable[[], object]) -> _T:
    """Run what blocks in a thread; when cancelled, call `stop`, which ends it, and wait for the thread.

    It waits also when it is cancelled again: the caller gives back what the thread uses.
    """
    future = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        stop()
        while not future.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([future])
        future.exception()  # retrieved: it was ended
        raise


async def in_thread(sock: socket.socket, work: Callable[[], _T]) -> _T:
    """Run what blocks on a socket in a thread; when cancelled, shut the socket down. Raises PerfError."""
    try:
        return await stoppable(work, stop=lambda: _shut_down(sock))
    except OSError as error:
        raise PerfError(f"TCP: {error.strerror or error}") from error


def _shut_down(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _filled(sock: socket.socket, buffer: memoryview) -> bool:
    """Fill the buffer; return False if the connection ends before."""
    at = 0
    while at < len(buffer):
        count = sock.recv_into(buffer[at:])
        if not count:
            return False
        at += count
    return True


def no_delay(sock: socket.socket) -> None:
    """Send each message at once."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


# -- the client -------------------------------------------------------------------------------------------------------


def round_trips(
    exchange: Callable[[int], npt.NDArray[np.uint8]], source: PayloadSource, *, sweep: Sweep
) -> tuple[list[int], int]:
    """Return the times of the round trips that count, in nanoseconds, and how many there were. Raises PerfError.

    `exchange` sends what the source has from an offset on, and returns the answer, which is to be the same.
    """
    clock, times, done = time.perf_counter_ns, list[int](), 0
    span = Span.of(sweep, now_ns=clock())
    while span.goes_on(clock(), counted=len(times)):
        offset = source.offset(done)
        began = clock()
        arrived = exchange(offset)
        took = clock() - began
        if sweep.verify and source.difference(offset, arrived) is not None:
            raise PerfError(f"{sweep.protocol}: the answer to message {done} is not what was sent")
        if span.counts(began, done=done):
            times.append(took)
        done += 1
    return times, done


def ping(sock: socket.socket, source: PayloadSource, *, size_bytes: int, sweep: Sweep) -> tuple[list[int], int]:
    """Measure round trips over a socket, as `round_trips` does; the other end has `answer`. Raises PerfError."""
    no_delay(sock)
    buffer = memoryview(bytearray(size_bytes))
    array = np.frombuffer(buffer, np.uint8)
    with memoryview(source.region) as memory:

        def exchange(offset: int) -> npt.NDArray[np.uint8]:
            sock.sendall(memory[offset : offset + size_bytes])
            if not _filled(sock, buffer):
                raise PerfError("TCP: the server has closed the connection")
            return array

        measured = round_trips(exchange, source, sweep=sweep)
    sock.shutdown(socket.SHUT_WR)
    return measured


class Pour:
    """Writes messages, one after the other, and knows how many were acknowledged."""

    def __init__(self, sock: socket.socket, source: PayloadSource, *, size_bytes: int, depth: int) -> None:
        self._socket, self._source, self._size_bytes = sock, source, size_bytes
        self._step = max(1, depth // POINTS_OF_A_SERIES)
        self.count = 0  # messages written

    def write(self, quota: MessageQuota, progress: CompletionSeries) -> None:
        """Write what the quota allows; blocks. Raises OSError."""
        base, size = self.count, self._size_bytes
        with memoryview(self._source.region) as memory:
            while count := quota.take(self._step):
                for number in range(self.count, self.count + count):
                    offset = self._source.offset(number)
                    self._socket.sendall(memory[offset : offset + size])
                self.count += count
                acknowledged = (self.count * size - self._unacknowledged()) // size - base
                progress.add(max(0, acknowledged - progress.count))

    def _unacknowledged(self) -> int:
        answer = fcntl.ioctl(self._socket, termios.TIOCOUTQ, bytes(4))  # SIOCOUTQ, tcp(7)
        return int.from_bytes(answer, "little")

    def drain(self) -> None:
        """Wait until all is acknowledged; blocks."""
        while self._unacknowledged():
            time.sleep(_TICK_S)

    def end(self) -> None:
        """Wait until the server has read all; blocks. Raises PerfError."""
        self._socket.shutdown(socket.SHUT_WR)
        answer = memoryview(bytearray(_COUNT.size))
        if not _filled(self._socket, answer):
            raise PerfError("TCP: the server has closed the connection")
        (read_bytes,) = _COUNT.unpack(answer)
        if read_bytes != self.count * self._size_bytes:
            raise PerfError(f"TCP: {self.count * self._size_bytes} bytes were sent, and {read_bytes} have arrived")


def answer(sock: socket.socket, source: PayloadSource, *, size_bytes: int, check: PartCheck | None) -> Iterator[int]:
    """Answer messages until the connection ends; yield the length of each. Raises OSError, PerfError."""
    no_delay(sock)
    buffer, number = memoryview(bytearray(size_bytes)), 0
    with memoryview(source.region) as memory:
        while _filled(sock, buffer):
            offset = source.offset(number)
            sock.sendall(memory[offset : offset + size_bytes])
            if check is not None:
                check([buffer], number=number, length=size_bytes)
            number += 1
            yield size_bytes


# -- the server -------------------------------------------------------------------------------------------------------


class _Thread(Role):
    """A connection and its thread."""

    _payload: type[PayloadSource] = PayloadSource

    def __init__(self, sock: socket.socket, *, size_bytes: int, verify: bool, fail: Fail) -> None:
        super().__init__(fail=fail)
        self._socket, self._size_bytes, self._verify = sock, size_bytes, verify
        self._source = self._payload(size_bytes)
        self._read_bytes = 0
        self._start(in_thread(sock, self._work))

    def _work(self) -> None:
        raise NotImplementedError

    @property
    def moved(self) -> int:
        """Bytes that were read."""
        return self._read_bytes

    async def finish(self, count: int) -> None:
        """Wait for the end of the connection. Raises PerfError for other than `count` messages."""
        await asyncio.gather(*self._tasks)
        if self._read_bytes != count * self._size_bytes:
            sent = f"{count} messages of {self._size_bytes} bytes were sent"
            raise PerfError(f"TCP: {sent}, and {self._read_bytes} bytes have arrived")

    async def close(self) -> None:
        """End the connection."""
        await super().close()
        self._source.close()


class TcpResponder(_Thread):
    """Answers each message by one of the same length and number."""

    _payload = Shifted

    def _work(self) -> None:
        check = PartCheck(self._source) if self._verify else None
        for size in answer(self._socket, self._source, size_bytes=self._size_bytes, check=check):
            self._read_bytes += size


class TcpReader(_Thread):
    """Reads to the end, and says how much it was."""

    def _work(self) -> None:
        source = self._source
        for arrived in read(self._socket):
            if self._verify:
                period_bytes = source.period_bytes
                source.require_stream(arrived, done_bytes=self._read_bytes, period_bytes=period_bytes, of="TCP")
            self._read_bytes += len(arrived)
        self._socket.sendall(_COUNT.pack(self._read_bytes))
