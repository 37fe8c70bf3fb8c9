"""Workers of the case `tunnel`: programs of TCP that know nothing of what carries them.

Times are CLOCK_MONOTONIC's, which all processes of a machine share: the bench knows what it did when.
"""

from __future__ import annotations

import asyncio
import random
import resource
import socket
import struct
import time
from typing import Final

from netns.base.output import emit
from srd.perf.tcp_socket import CUBIC, make_socket

WRITE_BYTES: Final = 128 << 10
GAP_S: Final = 0.005
"""Shorter pauses are not noted."""
SILENCE_S: Final = 5.0
"""A connection from which nothing has come for so long has ended, though nobody has said so."""
ECHO_BYTES: Final = 20_000
"""Of each connection: more than a first window of congestion, so that it waits for acknowledgements."""
ECHO_BOUND_S: Final = 30.0
BACKLOG: Final = 4096
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


def stream_receive(*, host: str, mptcp: bool) -> None:
    """Read one connection to its end; emit its bytes, when they came, and the gaps between them."""
    buffer = bytearray(WRITE_BYTES)
    with make_socket(algorithm=CUBIC, mptcp=mptcp) as listener:  # open to the end: further subflows need it, too
        listener.bind((host, 0))
        listener.listen()
        emit("listening", port=listener.getsockname()[1])
        connection, _ = listener.accept()
        connection.settimeout(SILENCE_S)
        began_at = last_at = time.monotonic()
        samples, gaps, total_bytes = [(began_at, 0)], list[tuple[float, float]](), 0
        with connection:
            try:
                while count := connection.recv_into(buffer):
                    now = time.monotonic()
                    if now - last_at > GAP_S:
                        gaps.append((last_at, now - last_at))
                    last_at, total_bytes = now, total_bytes + count
                    if now - samples[-1][0] > 0.05:
                        samples.append((now, total_bytes))
            except (TimeoutError, ConnectionError):
                gaps.append((last_at, time.monotonic() - last_at))
    emit("received", bytes=total_bytes, samples=samples, gaps=gaps)


def stream_send(*, host: str, port: int, seconds: float, mptcp: bool, bind: str | None) -> None:
    """Write for a time. Then the connection is reset: what its socket still holds is of no interest."""
    data = bytes(WRITE_BYTES)
    with make_socket(algorithm=CUBIC, mptcp=mptcp) as sock:
        if bind is not None:
            sock.bind((bind, 0))
        sock.connect((host, port))
        until = time.monotonic() + seconds
        try:
            while (left_s := until - time.monotonic()) > 0:
                sock.settimeout(left_s)
                sock.send(data)
        except TimeoutError:  # a dead path: nothing more fits into its buffer
            pass
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    emit("sent", ended_at=until)


async def connections_receive(*, host: str) -> int:
    """Send back what each connection brings, until none is left."""
    _allow_files()
    served, open_now, most = 0, 0, 0
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served, open_now, most
        open_now += 1
        most = max(most, open_now)
        try:
            async with asyncio.timeout(ECHO_BOUND_S):
                while data := await reader.read(WRITE_BYTES):
                    writer.write(data)
                    await writer.drain()
            served += 1
        except OSError:  # reset, or silent
            pass
        finally:
            writer.close()
            open_now -= 1
            if not open_now:
                done.set()

    server = await asyncio.start_server(serve, host, 0, backlog=BACKLOG)
    async with server:
        emit("listening", port=server.sockets[0].getsockname()[1])
        await done.wait()
    emit("served", connections=served, at_once=most)
    return 0


async def connections_send(*, host: str, port: int, count: int) -> int:
    """Have all connections open at once, send on each, and compare what comes back."""
    _allow_files()
    began_at = time.monotonic()
    opened = asyncio.Barrier(count)

    async def one(number: int) -> bool:
        try:
            async with asyncio.timeout(ECHO_BOUND_S):
                reader, writer = await asyncio.open_connection(host, port)
        except OSError:
            await opened.abort()
            return False
        try:
            data = random.Random(number).randbytes(ECHO_BYTES)  # noqa: S311 - reproducible data, no secret
            async with asyncio.timeout(ECHO_BOUND_S):
                await opened.wait()
                writer.write(data)
                return await reader.readexactly(len(data)) == data
        except (OSError, asyncio.IncompleteReadError, asyncio.BrokenBarrierError):
            return False
        finally:
            writer.close()

    right = sum(await asyncio.gather(*map(one, range(count))))
    emit("exchanged", right=right, seconds=time.monotonic() - began_at)
    return 0


def _allow_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
