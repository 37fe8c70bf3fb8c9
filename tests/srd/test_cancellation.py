"""Each wait of the API, cancelled: nothing is lost or leaked, and the same call goes on as if it had never begun.

Three ways: a timeout of 0, a cancel while it waits, and a cancel after what it waits for has come, before it goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from devmem.region import Region
from devmem.registry import Access
from srd.batch import MessageBatch
from srd.endpoint import Endpoint
from srd.errors import PeerError
from srd.inbox import PeerInbox
from srd.message import Message
from srd.notify import Notify
from srd.peer import Peer
from srd.proto.wire.status import Status
from srd.streams.table import ReaderWriter
from srd.streams.wire import BACKLOG
from tests.patience import PATIENCE_S, until
from tests.srd.loopback import SMALL, content, open_files, pair, receive, send

SEED = 21
WINDOW = 64 << 10
CONFIG = replace(SMALL, stream_window_bytes=WINDOW)
LINES = b"one\ntwo\n"
PAYLOAD = content(100_000, seed=SEED)
LONG = content(6 * WINDOW, seed=SEED)
SMALL_COUNT = 32


@dataclass
class World:
    """Two endpoints with a peer, a stream from the one to the other, and memory there that may be written to."""

    one: Endpoint
    two: Endpoint
    here: Peer
    there: Peer
    ours: ReaderWriter
    theirs: ReaderWriter
    region: Region
    opened: list[ReaderWriter] = field(default_factory=list)

    @property
    def port(self) -> int:
        return self.two.address[1]


@dataclass(frozen=True)
class Wait:
    """A call that waits; what makes it return; and what is to be so after it was cancelled and called again."""

    call: Callable[[World], Awaitable[Any]]
    cause: Callable[[World], Coroutine[Any, Any, Any]]
    check: Callable[[World, Any, Any], Coroutine[Any, Any, None]]
    """Gets the results of the second call and of the cause."""
    prepare: Callable[[World], Coroutine[Any, Any, None]] | None = None


async def post_small(world: World) -> None:
    """Post messages of one packet; they are complete when this returns, and their completions are left in the queue."""
    world.here.post_sends(world.region, [0] * SMALL_COUNT, lengths=64)
    await world.here.send(b"")  # completes after them, or beside


async def write_there(world: World) -> None:
    with Region(1000) as target:
        there = world.two.register(
            target, offset=0, length=1000, access=Access.LOCAL_WRITE | Access.REMOTE_WRITE, peers=[world.there]
        )
        done = world.here.post_write(
            world.region, offset=0, length=1000, key=there.remote_key, target_offset=0, immediate=7
        )
        assert await done is Status.OK
        assert bytes(target.view(0, length=1000)) == bytes(world.region.view(0, length=1000))
        world.two.deregister(there)


async def write_stream(world: World) -> None:
    world.theirs[1].write(LINES)


async def write_long(world: World) -> None:
    world.ours[1].write(LONG)
    world.ours[1].write_eof()


async def fill_backlog(world: World) -> None:
    world.opened += [await world.here.open_stream() for _ in range(BACKLOG)]


async def is_payload(_: World, message: Message, __: Any) -> None:
    assert message.data() == PAYLOAD


async def is_small(world: World, first: Message | MessageBatch, _: None) -> None:
    """Read what is left of the small messages and of the empty one after them."""
    count, arrived = 0, first
    while True:
        with arrived:
            if arrived.length:
                assert arrived.length == 64
            count += arrived.count if isinstance(arrived, MessageBatch) else 1
        if count == SMALL_COUNT + 1:
            return
        arrived = await world.there.recv_batch()


async def is_completed(world: World, entries: list[Any], __: None) -> None:
    while sum(entry.count for entry in entries) < SMALL_COUNT:
        entries += await world.one.completions.wait()
    assert {entry.status for entry in entries} == {Status.OK}
    assert sum(entry.count for entry in entries) == SMALL_COUNT
    for _ in range(SMALL_COUNT + 1):
        (await world.there.recv()).release()


async def is_lines(world: World, first: bytes, _: None) -> None:
    world.theirs[1].write_eof()
    assert first + await world.ours[0].read() == LINES


async def is_stream(_: World, got: ReaderWriter, given: ReaderWriter) -> None:
    got[1].write(LINES)
    assert await given[0].readexactly(len(LINES)) == LINES


async def is_peer(_: World, got: Peer, given: Peer) -> None:
    await got.send(PAYLOAD)
    assert await receive(given) == PAYLOAD


async def is_long(_: World, __: None, got: bytes) -> None:
    assert got == LONG


async def close_written(world: World) -> None:
    world.ours[1].write(LONG)
    world.ours[1].close()


async def read_all_and_close(world: World) -> bytes:
    got = await world.theirs[0].read()
    world.theirs[1].close()
    return got


async def is_ended(world: World, status: Status, _: None) -> None:
    assert status is Status.OK
    assert world.here.ended


def receiving(call: Callable[[World], Awaitable[Message]]) -> Wait:
    return Wait(call, lambda world: world.here.send(PAYLOAD), is_payload)


def reading(call: Callable[[World], Awaitable[bytes]]) -> Wait:
    return Wait(call, write_stream, is_lines)


WAITS: dict[str, Wait] = {
    "recv": receiving(lambda world: world.there.recv()),
    "async for message": receiving(lambda world: anext(world.there)),
    "recv_batch": Wait(lambda world: world.there.recv_batch(), post_small, is_small),
    "completions.wait": Wait(lambda world: world.one.completions.wait(), post_small, is_completed),
    "accept": Wait(lambda world: world.two.accept(), lambda world: world.one.connect("127.0.0.1", world.port), is_peer),
    "async for peer": Wait(
        lambda world: anext(world.two), lambda world: world.one.connect("127.0.0.1", world.port), is_peer
    ),
    "accept_stream": Wait(lambda world: world.there.accept_stream(), lambda world: world.here.open_stream(), is_stream),
    "wait_ended": Wait(lambda world: world.there.wait_ended(), lambda world: world.here.close(), is_ended),
    "read": reading(lambda world: world.ours[0].read(100)),
    "readline": reading(lambda world: world.ours[0].readline()),
    "readuntil": reading(lambda world: world.ours[0].readuntil(b"o\n")),
    "readexactly": reading(lambda world: world.ours[0].readexactly(5)),
    "async for line": reading(lambda world: anext(world.ours[0])),
    "drain": Wait(
        lambda world: world.ours[1].drain(), lambda world: world.theirs[0].read(), is_long, prepare=write_long
    ),
    "wait_closed": Wait(lambda world: world.ours[1].wait_closed(), read_all_and_close, is_long, prepare=close_written),
}


async def is_written(_: World, written: Any, __: None) -> None:
    assert (written.length, written.immediate) == (1000, 7)


async def is_next_stream(world: World, got: ReaderWriter, _: ReaderWriter) -> None:
    """The streams that were opened before come first at the other end, each once."""
    for number in range(1, BACKLOG):
        reader, writer = await world.there.accept_stream()
        world.opened[number][1].write(bytes([number]))
        assert await reader.readexactly(1) == bytes([number])
        assert writer.get_extra_info("stream") == world.opened[number][1].get_extra_info("stream")
    await is_stream(world, got, await world.there.accept_stream())


WAITS["recv_write"] = Wait(lambda world: world.there.recv_write(), write_there, is_written)
WAITS["open_stream"] = Wait(
    lambda world: world.here.open_stream(),
    lambda world: world.there.accept_stream(),
    is_next_stream,
    prepare=fill_backlog,
)


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    """Give a world; nothing may be left of what happened in it: no memory, task or descriptor."""
    files = open_files()
    with Region(4096) as region:
        with region.view(0, length=4096) as view:
            view[:] = content(4096, seed=SEED)
        async with pair(config=CONFIG) as (one, two, here, there):
            ours, theirs = await here.open_stream(), await there.accept_stream()
            yield World(one, two, here, there, ours, theirs, region)
            again = await one.connect("127.0.0.1", two.address[1]), await two.accept()
            for ends in (again, (here, there)):
                if not here.ended or ends is again:
                    assert await send(ends[0], PAYLOAD, immediate=1) is Status.OK
                    assert await receive(ends[1]) == PAYLOAD
            for endpoint in (one, two):
                await free(endpoint)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert open_files() == files


async def free(endpoint: Endpoint) -> None:
    """Wait until no message holds memory: credit may be on its way."""
    pool = endpoint._engine.queues.host.pool
    await until(lambda: pool.free_chunks and not sum(pool._holds))


async def timed_out(wait: Awaitable[Any]) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await wait


async def cancelled(wait: Awaitable[Any]) -> None:
    task = asyncio.ensure_future(wait)
    await asyncio.sleep(0)
    assert not task.done(), "it does not wait"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("end", [timed_out, cancelled])
@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
async def test_wait__cancelled(wait: Wait, end: Callable[[Awaitable[Any]], Awaitable[None]]) -> None:
    async with world() as here:
        if wait.prepare is not None:
            await wait.prepare(here)
        await end(wait.call(here))
        await wait.check(here, *await asyncio.gather(wait.call(here), wait.cause(here)))


WAKERS = ((Notify, "notify"), (PeerInbox, "complete"), (asyncio.StreamReader, "_wakeup_waiter"),
          (asyncio.StreamReaderProtocol, "resume_writing"))  # fmt: skip


@contextmanager
def cancelled_when_woken(task: asyncio.Future[Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Cancel a task after the future that it waits for has got its result, and before the loop lets the task go on."""

    def waking(wake: Callable[..., Any]) -> Callable[..., Any]:
        def wake_and_cancel(*arguments: Any, **named: Any) -> Any:
            waited = getattr(task, "_fut_waiter", None)
            result = wake(*arguments, **named)
            if waited is not None and waited.done():
                task.cancel()
            return result

        return wake_and_cancel

    with monkeypatch.context() as patch:
        for owner, name in WAKERS:
            patch.setattr(owner, name, waking(getattr(owner, name)))
        yield


@pytest.mark.sources
@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
async def test_wait__cancelled_when_what_it_waits_for_has_come(wait: Wait, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as here:
        if wait.prepare is not None:
            await wait.prepare(here)
        task = asyncio.ensure_future(wait.call(here))
        await asyncio.sleep(0)
        with cancelled_when_woken(task, monkeypatch):
            caused = asyncio.ensure_future(wait.cause(here))
            await asyncio.wait([task, caused])
            assert task.cancelled()
        await wait.check(here, await wait.call(here), await caused)


# -- sending --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [timed_out, cancelled])
async def test_send__cancelled_while_it_waits_for_credit(end: Callable[[Awaitable[Any]], Awaitable[None]]) -> None:
    """The window holds two messages of 4 MiB; the third one never arrives, and takes nothing from those after it."""
    longest = content(4 << 20, seed=SEED)
    async with world() as here:
        for _ in range(2):
            await here.here.send(longest)
        await end(here.here.send(bytes(4 << 20)))
        for _ in range(2):
            assert await receive(here.there) == longest
        for number in range(3):
            await here.here.send(longest[number:])
            assert await receive(here.there) == longest[number:]
        assert not any(here.here._inbox.request(number) for number in range(10))


@pytest.mark.sources
async def test_send__cancelled_when_it_was_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as here:
        with here.region.view(0, length=1000) as view:
            task = asyncio.ensure_future(here.here.send(view))
            await asyncio.sleep(0)
            with cancelled_when_woken(task, monkeypatch), pytest.raises(asyncio.CancelledError):
                await task
        here.region.close()  # nothing reads it
        assert len(await receive(here.there)) == 1000


# -- opening --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [timed_out, cancelled])
async def test_connect__cancelled(end: Callable[[Awaitable[Any]], Awaitable[None]]) -> None:
    async with world() as here:
        await end(here.one.connect("127.0.0.1", here.port))
        assert not here.one._opening
        assert not here.one._first_use


# -- closing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [timed_out, cancelled])
async def test_peer_close__cancelled_releases_what_was_not_received(
    end: Callable[[Awaitable[Any]], Awaitable[None]],
) -> None:
    """Messages, a stream that was not accepted, and what lies in one that was."""
    async with world() as here:
        await here.here.send(PAYLOAD)
        _, writer = await here.here.open_stream()
        writer.write(PAYLOAD)
        here.ours[1].write(PAYLOAD)
        await until(lambda: here.there.streams._pending and here.there._inbox.messages)
        await end(here.there.close())
        assert here.there.ended
        assert await here.here.wait_ended() is Status.OK
        await free(here.two)
        assert not here.there.streams._pending
        with pytest.raises(PeerError):
            await here.there.recv()
        with pytest.raises(PeerError):
            await here.there.accept_stream()
        with pytest.raises(ConnectionResetError):
            await writer.wait_closed()


@pytest.mark.parametrize("end", [timed_out, cancelled])
async def test_endpoint_close__cancelled_leaves_nothing(end: Callable[[Awaitable[Any]], Awaitable[None]]) -> None:
    files = open_files()
    async with pair(config=CONFIG) as (_, two, here, there):
        await here.send(PAYLOAD)
        _, writer = await here.open_stream()
        await end(two.close())
        assert there.ended
        await two.close()  # has no further effect
        for wait in (there.recv, there.accept_stream, there.open_stream):
            with pytest.raises(PeerError):
                await wait()
        await here.wait_ended()
        writer.close()
        with pytest.raises(ConnectionResetError):
            await writer.wait_closed()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert open_files() == files


async def test_endpoint_close__two_wait_and_the_first_is_cancelled() -> None:
    async with pair(config=CONFIG) as (_, two, _, there):
        first, second = (asyncio.ensure_future(two.close()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait_for(second, PATIENCE_S)
        assert first.cancelled()
        assert there.ended
