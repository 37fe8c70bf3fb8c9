"""Streams: the goodput of ordered bytes, by streams of a peer, by its messages, and by asyncio's streams over TCP.

All send the bytes of one buffer of 4 MiB, from as many tasks as there are streams. In every other turn the receiver
compares every byte; only the turns between are timed: from the first write until the receiver says that it has all.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol

from netns.base.output import emit
from scripts.benches.veth.worker.bulk import DAMAGED, INTACT, SOURCE_BYTES, content
from scripts.harness.errors import BenchError
from srd import Endpoint, EndpointConfig, Peer, PeerError, Plain

STREAM: Final = "stream"
MESSAGE: Final = "message"
TCP: Final = "tcp"
KINDS: Final = (STREAM, MESSAGE, TCP)
TURN_BYTES: Final = 128 << 20
PIECE_BYTES: Final = 128 << 10
"""Bytes of a write and of a message: the longest message of a stream."""
READ_BYTES: Final = 256 << 10
WARM_UP_TURNS: Final = 2
CONFIG: Final = EndpointConfig(security=Plain())


class Channel(Protocol):
    async def write(self, piece: bytes, *, number: int) -> None:
        """Send a piece, and wait until another may be sent."""

    async def read(self) -> tuple[int, bytes]:
        """Return what has arrived, and where it lies in the buffer; no bytes at the end."""


class StreamChannel:
    """A reader and a writer of asyncio: a stream of a peer, or a TCP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._at = 0

    async def write(self, piece: bytes, *, number: int) -> None:  # noqa: ARG002 - it comes in order
        self._writer.write(piece)
        await self._writer.drain()

    async def read(self) -> tuple[int, bytes]:
        at, data = self._at, await self._reader.read(READ_BYTES)
        self._at = (at + len(data)) % SOURCE_BYTES
        return at, data


class MessageChannel:
    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    async def write(self, piece: bytes, *, number: int) -> None:
        await self._peer.send(piece, immediate=number)

    async def read(self) -> tuple[int, bytes]:
        try:
            message = await self._peer.recv()
        except PeerError:
            return 0, b""
        return (message.immediate or 0) * PIECE_BYTES, message.data()


# -- the sending end --------------------------------------------------------------------------------------------------


async def send(*, host: str, port: int, seconds: float, kind: str, count: int) -> int:
    """Send turns until `seconds` were timed; emit bytes, seconds and this end's CPU time of these."""
    source = content().tobytes()
    pieces = [source[at : at + PIECE_BYTES] for at in range(0, SOURCE_BYTES, PIECE_BYTES)]
    timed_s = cpu_s = 0.0
    turn = timed = 0
    async with _connected(kind, host, port=port, count=count) as channels:
        while timed_s < seconds:
            started, cpu_before = time.perf_counter(), time.process_time()
            await asyncio.gather(*(_write(channel, pieces, TURN_BYTES // len(channels)) for channel in channels))
            _, verdict = await channels[0].read()
            if verdict != bytes([INTACT]):
                raise BenchError("the receiver found other bytes than were sent")
            if turn >= WARM_UP_TURNS and not _is_checked(turn):
                timed_s += time.perf_counter() - started
                cpu_s += time.process_time() - cpu_before
                timed += 1
            turn += 1
    emit("sent", bytes=TURN_BYTES * timed, seconds=timed_s, cpu_s=cpu_s)
    return 0


def _is_checked(turn: int) -> bool:
    return bool(turn % 2)


async def _write(channel: Channel, pieces: list[bytes], byte_count: int) -> None:
    for count in range(byte_count // PIECE_BYTES):
        number = count % len(pieces)
        await channel.write(pieces[number], number=number)


@asynccontextmanager
async def _connected(kind: str, host: str, *, port: int, count: int) -> AsyncIterator[Sequence[Channel]]:
    if kind == TCP:
        opened = [await asyncio.open_connection(host, port) for _ in range(count)]
        yield [StreamChannel(*each) for each in opened]
        for _, writer in opened:
            writer.close()
        return
    async with Endpoint.open(towards=host, config=CONFIG) as endpoint, endpoint.connect(host, port) as peer:
        if kind == MESSAGE:
            yield [MessageChannel(peer) for _ in range(count)]
            return
        streams = [await peer.open_stream() for _ in range(count)]
        yield [StreamChannel(*each) for each in streams]
        for _, writer in streams:
            writer.close()
            await writer.wait_closed()


# -- the receiving end ------------------------------------------------------------------------------------------------


async def receive(*, host: str, kind: str, count: int) -> int:
    """Receive turns until the sender closes; emit whether every byte was right, and the CPU time of those timed."""
    expected = content().tobytes()
    expected += expected[:READ_BYTES]
    intact, cpu_s, turn = True, 0.0, 0
    async with _accepted(kind, host, count=count) as channels:
        while True:
            checked = memoryview(expected) if _is_checked(turn) else None
            cpu_before = time.process_time()
            reading = [_read(channel, TURN_BYTES // len(channels), checked) for channel in channels]
            found = await asyncio.gather(*reading)
            if None in found:
                break
            intact &= all(found)
            if turn >= WARM_UP_TURNS and not _is_checked(turn):
                cpu_s += time.process_time() - cpu_before
            await channels[0].write(bytes([INTACT if intact else DAMAGED]), number=0)
            turn += 1
    emit("received", cpu_s=cpu_s, intact=intact)
    return 0


async def _read(channel: Channel, byte_count: int, expected: memoryview | None) -> bool | None:
    """Read so many bytes; return whether they are the expected ones, None at the end."""
    left, intact = byte_count, True
    while left > 0:
        at, data = await channel.read()
        if not data:
            return None
        intact &= expected is None or expected[at : at + len(data)] == data
        left -= len(data)
    return intact and left == 0


@asynccontextmanager
async def _accepted(kind: str, host: str, *, count: int) -> AsyncIterator[Sequence[Channel]]:
    if kind == TCP:
        arrived = asyncio.Queue[StreamChannel]()
        server = await asyncio.start_server(lambda *ends: arrived.put_nowait(StreamChannel(*ends)), host, 0)
        async with server:
            emit("listening", port=server.sockets[0].getsockname()[1])
            yield [await arrived.get() for _ in range(count)]
        return
    async with Endpoint.listen(host, 0, config=CONFIG) as endpoint:
        emit("listening", port=endpoint.address[1])
        async with await endpoint.accept() as peer:
            if kind == MESSAGE:
                yield [MessageChannel(peer)]
            else:
                yield [StreamChannel(*await peer.accept_stream()) for _ in range(count)]
