"""Streams of a peer on real sockets, as asyncio's users know them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import srd
from srd.endpoint import Endpoint
from srd.errors import PeerError
from srd.peer import Peer
from srd.proto.wire.status import Status
from srd.proto.work_request import BatchRequest, WorkRequest
from srd.send_memory import in_place
from srd.streams.halves import OutgoingFrame
from srd.streams.table import MAX_PIECE_BYTES, ReaderWriter, Streams
from srd.streams.wire import BACKLOG, INITIAL_WINDOW_BYTES, MAX_PIECES, FrameKind, key
from tests.patience import PATIENCE_S, until
from tests.srd.loopback import SMALL, content, pair, receive
from tests.srd.lossy import relay

SEED = 21
WINDOW = 256 << 10
CONFIG = replace(SMALL, stream_window_bytes=WINDOW)


@asynccontextmanager
async def streams() -> AsyncIterator[tuple[Peer, Peer, ReaderWriter, ReaderWriter]]:
    """Give two peers, and a stream between them: the opener's and the acceptor's end."""
    async with pair(config=CONFIG) as (_, _, here, there):
        yield here, there, await here.open_stream(), await there.accept_stream()


async def write_all(writer: asyncio.StreamWriter, payload: bytes, *, seed: int) -> None:
    """Write in parts of any size, and end it."""
    rng, at = random.Random(seed), 0
    while at < len(payload):
        size = rng.choice([1, 10, 1000, 9000, 100_000])
        writer.write(payload[at : at + size])
        at += size
        await writer.drain()
    writer.write_eof()


async def tell(here: Peer, there: Peer, payload: bytes) -> None:
    """Carry a message from one end to the other."""
    await here.send(payload)
    assert await receive(there) == payload


async def waits(task: asyncio.Task[Any]) -> None:
    """The task does not end for now."""
    done, _ = await asyncio.wait([task], timeout=0.1)
    assert not done


async def settled(*peers: Peer) -> None:
    """Wait until no stream is left at both ends."""
    await until(lambda: not any(peer.streams._open for peer in peers))


def held(endpoint: Endpoint) -> int:
    """Return how many fragments are held in the receive region."""
    pool = endpoint._engine.queues.host.pool
    assert pool.free_chunks  # takes note of views that have ended
    return sum(pool._holds)


# -- bytes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
async def test_streams__every_byte_over_a_bad_network(seed: int) -> None:
    """Many at once, both ways, and messages between them."""
    count, size_bytes = 6, 1_500_000
    async with (
        asyncio.timeout(2 * PATIENCE_S),
        Endpoint.listen("127.0.0.1", 0, config=CONFIG) as two,
        relay(two.address[1], seed=seed) as network,
        srd.connect("127.0.0.1", network.port, config=CONFIG) as here,
    ):
        there = await two.accept()

        async def use(stream: ReaderWriter, *, number: int) -> bytes:
            reader, writer = stream
            writing = asyncio.create_task(write_all(writer, content(size_bytes, seed=number), seed=seed))
            got = await reader.read(-1)
            await writing
            writer.close()
            await writer.wait_closed()
            return got

        async def serve() -> list[bytes]:
            using = [asyncio.create_task(use(await there.accept_stream(), number=100)) for _ in range(count)]
            return list(await asyncio.gather(*using))

        serving = asyncio.create_task(serve())
        opened = [use(await here.open_stream(), number=number) for number in range(count)]
        answers, received = asyncio.gather(*opened), asyncio.create_task(receive(there))
        await here.send(b"a message", immediate=0xFFFFFFFF)
        assert await received == b"a message"
        assert sorted(await serving) == sorted(content(size_bytes, seed=number) for number in range(count))
        assert await answers == [content(size_bytes, seed=100)] * count
        assert network.lost > 10
        await settled(here, there)


async def test_reader__as_people_know_it() -> None:
    async with streams() as (_, _, (reader, writer), (their_reader, their_writer)):
        writer.writelines([b"one\ntwo\n", bytearray(b"thr"), memoryview(b"ee|")])
        assert await their_reader.readline() == b"one\n"
        assert await their_reader.readuntil(b"o\n") == b"two\n"
        assert await their_reader.readexactly(6) == b"three|"
        their_writer.write(b"short")
        their_writer.close()
        with pytest.raises(asyncio.IncompleteReadError) as caught:
            await reader.readexactly(10)
        assert caught.value.partial == b"short"
        assert reader.at_eof()


async def test_write_eof__is_half_a_close() -> None:
    async with streams() as (here, there, (reader, writer), (their_reader, their_writer)):
        assert writer.can_write_eof()
        writer.write(b"question")
        writer.write_eof()
        with pytest.raises(RuntimeError, match="after write_eof"):
            writer.write(b"more")
        assert await their_reader.read() == b"question"
        their_writer.write(b"answer")
        await their_writer.drain()
        assert await reader.readexactly(6) == b"answer"
        their_writer.close()
        assert await reader.read() == b""
        await their_writer.wait_closed()
        writer.close()
        await writer.wait_closed()
        await settled(here, there)


async def test_wait_closed__says_that_everything_has_arrived() -> None:
    async with streams() as (here, _, (_, writer), (their_reader, _)):
        payload = content(WINDOW // 2, seed=SEED)
        writer.write(payload)
        assert not writer.is_closing()
        writer.close()
        assert writer.is_closing()
        await writer.wait_closed()
        await here.close()
        assert await their_reader.read() == payload


async def test_extra_info() -> None:
    async with streams() as (here, there, (_, writer), (_, their_writer)):
        assert writer.get_extra_info("peername") == here.address
        assert their_writer.get_extra_info("sockname") == here.address
        assert writer.get_extra_info("peer") is here
        assert writer.get_extra_info("stream") == their_writer.get_extra_info("stream") == 0
        assert writer.get_extra_info("sslcontext") is None
        assert repr(writer.transport) == "<StreamTransport 0, sending OPEN, receiving OPEN>"
        _, back = await there.open_stream()
        assert back.get_extra_info("stream") == 1


async def test_open__a_hundred_on_one_peer() -> None:
    async with pair(config=CONFIG) as (_, _, here, there):

        async def echo(stream: ReaderWriter) -> None:
            reader, writer = stream
            writer.write(await reader.read())
            writer.close()
            await writer.wait_closed()

        async def serve() -> None:
            async with asyncio.TaskGroup() as group:
                for _ in range(100):
                    group.create_task(echo(await there.accept_stream()))

        async def ask(number: int) -> None:
            reader, writer = await here.open_stream()
            writer.write(bytes([number]) * 1000)
            writer.write_eof()
            assert await reader.read() == bytes([number]) * 1000
            writer.close()

        await asyncio.gather(serve(), *(ask(number) for number in range(100)))
        await settled(here, there)


# -- flow control ---------------------------------------------------------------------------------------------------


async def test_drain__waits_for_a_reader_that_does_not_read() -> None:
    payload = content(8 * WINDOW, seed=SEED)
    async with streams() as (here, there, (_, writer), (their_reader, _)):
        writing = asyncio.create_task(write_all(writer, payload, seed=SEED))
        await waits(writing)
        transport = next(iter(there.streams._open.values()))
        held = transport._stream.receive
        assert held.offset - held.taken + len(their_reader._buffer) <= WINDOW + 2 * MAX_PIECE_BYTES  # type: ignore[attr-defined]
        await tell(here, there, b"messages are not stopped")
        other_reader, other_writer = (await there.open_stream()), (await here.accept_stream())
        other_writer[1].write(b"nor are other streams")
        assert await other_reader[0].readexactly(21) == b"nor are other streams"
        assert await their_reader.read() == payload
        await writing


async def test_open__waits_while_too_many_were_not_accepted() -> None:
    async with pair(config=CONFIG) as (_, _, here, there):
        opened = [await here.open_stream() for _ in range(BACKLOG)]
        waiting = asyncio.create_task(here.open_stream())
        await waits(waiting)
        await there.accept_stream()
        async with asyncio.timeout(PATIENCE_S):
            opened.append(await waiting)
        assert [writer.get_extra_info("stream") for _, writer in opened] == [2 * n for n in range(BACKLOG + 1)]


async def test_accept__before_it_little_is_held_and_nothing_in_the_region() -> None:
    async with pair(config=CONFIG) as (_, two, here, there):
        _, writer = await here.open_stream()
        payload = content(WINDOW, seed=SEED)
        writing = asyncio.create_task(write_all(writer, payload, seed=SEED))
        await until(lambda: [each for each in there.streams._pending.values() if each.receive.offset])
        await waits(writing)
        (pending,) = there.streams._pending.values()
        assert 0 < pending.receive.offset <= INITIAL_WINDOW_BYTES
        assert not held(two)
        reader, _ = await there.accept_stream()
        assert await reader.read() == payload
        await writing


async def test_accept__before_it_any_number_of_short_writes_is_no_violation() -> None:
    """The sender's bound is on messages that are not acknowledged."""
    async with pair(config=CONFIG) as (_, _, here, there):
        _, writer = await here.open_stream()
        payload = content(MAX_PIECES + 100, seed=SEED)
        for byte in payload:
            writer.write(bytes([byte]))
            here.send_now()
            await tell(here, there, b"x")
        writer.write_eof()
        assert not there.ended
        reader, _ = await there.accept_stream()
        assert await reader.read() == payload


async def test_accept__a_stream_that_was_reset_before() -> None:
    async with pair(config=CONFIG) as (_, _, here, there):
        _, writer = await here.open_stream()
        writer.write(b"some")
        await writer.drain()
        writer.transport.abort()
        await tell(here, there, b"x")
        reader, writer = await there.accept_stream()
        with pytest.raises(ConnectionResetError, match="stream 0: reset by the other end"):
            await reader.read()
        await settled(here, there)


# -- the end --------------------------------------------------------------------------------------------------------


async def test_close__by_who_does_not_read_stops_the_writer_and_loses_nothing() -> None:
    async with streams() as (here, there, (reader, writer), (_, their_writer)):
        their_writer.write(b"that is enough")
        their_writer.close()
        async with asyncio.timeout(PATIENCE_S):

            async def write_for_ever() -> None:
                while True:
                    writer.write(bytes(10_000))
                    await writer.drain()

            with pytest.raises(ConnectionResetError):
                await write_for_ever()
            assert await reader.read() == b"that is enough"
            await their_writer.wait_closed()
        await settled(here, there)


async def test_abort__resets_the_other_end() -> None:
    async with streams() as (here, there, (_, writer), (their_reader, their_writer)):
        writer.transport.abort()
        with pytest.raises(ConnectionResetError, match="stream 0: reset by the other end"):
            await their_reader.read()
        with pytest.raises(ConnectionResetError):
            await their_writer.drain()
        await settled(here, there)
        await tell(here, there, b"the peer is alive")


async def test_peer_ends__its_streams_are_reset() -> None:
    async with streams() as (here, there, (reader, _), (their_reader, _)):
        reading = asyncio.create_task(their_reader.read())
        await here.close()
        for waiting in (reading, reader.read()):
            with pytest.raises(ConnectionResetError) as caught:
                await asyncio.wait_for(waiting, PATIENCE_S)
            assert isinstance(caught.value.__cause__, PeerError)
        for open_or_accept in (there.open_stream, there.accept_stream, here.open_stream, here.accept_stream):
            with pytest.raises(PeerError):
                await open_or_accept()


async def test_peer_ends__what_has_arrived_can_still_be_accepted_and_read() -> None:
    async with pair(config=CONFIG) as (_, _, here, there):
        payload = content(INITIAL_WINDOW_BYTES, seed=SEED)
        for _ in range(2):
            _, writer = await here.open_stream()
            writer.write(payload)
            writer.close()
            await writer.wait_closed()
        await here.close()
        assert await there.wait_ended() is Status.OK
        for _ in range(2):
            reader, writer = await there.accept_stream()
            assert await reader.read() == payload
            writer.close()
            await writer.wait_closed()
        with pytest.raises(PeerError):
            await there.accept_stream()


async def test_peer_ends__wait_closed_does_not_say_that_all_has_arrived() -> None:
    async with streams() as (here, there, (_, writer), (_, their_writer)):
        their_writer.write_eof()
        writer.write(bytes(4 * WINDOW))
        await until(lambda: there.landed_bytes)
        await here.close()
        writer.close()
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(writer.wait_closed(), PATIENCE_S)


async def test_peer_ends__in_the_turn_in_which_the_last_bytes_are_acknowledged() -> None:
    """The loop calls the callbacks of the requests after the peer has ended: what has arrived is not lost."""
    posted: list[asyncio.Future[Status]] = []

    def post(_: int, __: OutgoingFrame) -> asyncio.Future[Status]:
        posted.append(asyncio.get_running_loop().create_future())
        return posted[-1]

    table = Streams(is_acceptor=False, window_bytes=WINDOW, piece_bytes=MAX_PIECE_BYTES, post=post, extra={})
    _, writer = await table.open(limit=WINDOW)
    writer.write(b"the last bytes")
    writer.close()
    await asyncio.sleep(0)
    for future in posted:
        future.set_result(Status.OK)
    table.on_peer_ended(PeerError("closed", status=Status.OK))
    await asyncio.wait_for(writer.wait_closed(), PATIENCE_S)


async def test_endpoint_fails__no_reader_waits_for_ever() -> None:
    async with streams() as (_, there, _, (their_reader, _)):
        reading = asyncio.create_task(their_reader.read())
        await asyncio.sleep(0)
        there._engine._fail(ValueError("no"))
        with pytest.raises(ConnectionResetError, match="internal error"):
            await asyncio.wait_for(reading, PATIENCE_S)


# -- hostile ends ---------------------------------------------------------------------------------------------------


def post(peer: Peer, message_key: int, *, immediate: int | None = 0, payload: bytes = b"") -> None:
    """Send any message at all."""
    memory = in_place(payload)
    wr = WorkRequest(peer._next_request, memory.length, memory.address, immediate=immediate, key=message_key)
    peer._post(wr, view=memory.view)


DATA, EOF, LIMIT = (key(kind, stream=0) for kind in (FrameKind.DATA, FrameKind.EOF, FrameKind.LIMIT))
VIOLATIONS: dict[str, list[tuple[int, int | None, bytes]]] = {
    "unknown kind": [(1, 0, b"")],
    "no offset": [(DATA, None, b"abc")],
    "a payload in a limit": [(LIMIT, 0, b"abc")],
    "never opened by the victim": [(key(FrameKind.DATA, stream=1), 0, b"abc")],
    "too many": [(key(FrameKind.LIMIT, stream=2 * BACKLOG + 2), 0, b"")],
    "a huge number": [(key(FrameKind.LIMIT, stream=(1 << 56) - 2), 0, b"")],
    "beyond the limit": [(DATA, WINDOW - 1, b"abc")],
    "twice": [(DATA, 0, b"abc"), (DATA, 2, b"abc")],
    "twice, and more": [(DATA, 0, b"abc"), (DATA, 2, b"abc"), *((DATA, 5 + 3 * n, b"abc") for n in range(20))],
    "twice out of order": [(DATA, 10, b"abc"), (DATA, 12, b"abc")],
    "twice from before": [(DATA, 10, b"abc"), (DATA, 9, b"ab")],
    "twice around": [(DATA, 10, b"abc"), (DATA, 9, b"abcdef")],
    "twice across two": [(DATA, 10, b"abc"), (DATA, 20, b"abc"), (DATA, 13, b"abcdefgh")],
    "too many pieces": [(DATA, 1 + 2 * number, b"x") for number in range(MAX_PIECES + 1)],
    "two ends": [(EOF, 10, b""), (EOF, 11, b"")],
    "behind the end": [(EOF, 10, b""), (DATA, 9, b"abc")],
    "an end too early": [(DATA, 10, b"abc"), (EOF, 5, b"")],
    "a limit far ahead": [(LIMIT, (1 << 31) - 1, b"")],
    "more than the first window": [(DATA, 0, bytes(INITIAL_WINDOW_BYTES + 1))],
}


@pytest.mark.parametrize("accepted", [False, True])
@pytest.mark.parametrize("violation", VIOLATIONS.values(), ids=VIOLATIONS)
async def test_violation__ends_the_peer_and_nothing_else_bad_flow(
    violation: list[tuple[int, int | None, bytes]],
    accepted: bool,  # noqa: FBT001
) -> None:
    async with pair(config=CONFIG) as (one, two, here, there), one.connect("127.0.0.1", two.address[1]) as good:
        other = await two.accept()
        if accepted:
            await here.open_stream()
            await there.accept_stream()
            if violation == VIOLATIONS["more than the first window"]:
                violation = [(DATA, 0, bytes(WINDOW + 1))]
        for message_key, immediate, payload in violation:
            post(here, message_key, immediate=immediate, payload=payload)
        async with asyncio.timeout(PATIENCE_S):
            assert await there.wait_ended() is Status.REMOTE_ERROR_ABORT
        await tell(good, other, b"fine")
        await asyncio.sleep(0)
        await there.close()
        assert not held(two)


async def test_violation__a_batch_bad_flow() -> None:
    async with pair(config=CONFIG) as (_, _, here, there):
        memory = in_place(bytes(100))
        addresses = np.full(8, memory.address, np.uint64)
        here._engine.post_batch(here.number, BatchRequest(0, addresses, 100, 0, owner=memory.view, key=DATA))
        assert await asyncio.wait_for(there.wait_ended(), PATIENCE_S) is Status.REMOTE_ERROR_ABORT


async def test_hostile__control_messages_without_end_take_no_memory() -> None:
    async with pair(config=CONFIG) as (_, two, here, there):
        for _ in range(3000):
            post(here, LIMIT, immediate=WINDOW)
        await tell(here, there, b"fine")
        assert not held(two)
        (pending,) = there.streams._pending.values()
        assert not pending.receive._pieces
        assert not pending.receive._ready


async def test_hostile__a_stream_that_nobody_accepts_pins_no_memory() -> None:
    """One byte, then a chunk that the application consumes, for as many chunks as there are: another peer goes on."""
    async with pair(config=CONFIG) as (one, two, here, there), one.connect("127.0.0.1", two.address[1]) as good:
        other, pool = await two.accept(), two._engine.queues.host.pool
        _, writer = await here.open_stream()
        filling = content(CONFIG.chunk_bytes, seed=SEED)
        before = pool.free_chunks
        for _ in range(pool.chunks + 10):
            writer.write(b"x")
            await tell(here, there, filling)
        assert pool.free_chunks >= before - 2, "a slot may have begun another"
        payload = content(1 << 20, seed=SEED)
        await tell(good, other, payload)


async def test_hostile__messages_of_streams_that_are_over_are_dropped() -> None:
    async with streams() as (here, there, (_, writer), (_, their_writer)):
        writer.close()
        their_writer.close()
        await settled(here, there)
        for kind in FrameKind:
            post(here, key(kind, stream=0), payload=b"x" if kind is FrameKind.DATA else b"")
        await tell(here, there, b"fine")
        assert not there.streams._pending
