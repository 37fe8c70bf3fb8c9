"""srd.engine alone: two of them over loopback, with peer numbers and events."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import pytest

import srd.engine
from devmem.errors import PoolError
from devmem.region import Region
from devmem.registry import Access, Registry
from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.engine import Engine
from srd.errors import SrdError, UsageError
from srd.io.socket import open_socket
from srd.io.syscalls import Address
from srd.proto.events import Completion, Event, MessageAborted, MessageReceived, PeerEnded, PeerOpened, WriteReceived
from srd.proto.memory import Destinations
from srd.proto.wire.data import Opcode
from srd.proto.wire.status import Status
from srd.proto.work_request import WorkRequest
from tests.patience import PATIENCE_S
from tests.srd.loopback import SMALL, content, memory, open_files

MIB = 1 << 20
SEED = 31
T = TypeVar("T", bound=Event)


class Owner:
    """An engine, its registrations, and its events."""

    def __init__(
        self,
        *,
        config: EndpointConfig = SMALL,
        destinations: Destinations | None = None,
    ) -> None:
        self.events: list[Event] = []
        self.registry = Registry()
        self.breaks_on: type[Event] | None = None
        self._changed = asyncio.Event()
        self.engine = Engine(
            config,
            ("127.0.0.1", 0),
            family=socket.AF_INET,
            accepting=True,
            memory=self.registry,
            destinations=destinations,
            on_event=self._on_event,
            on_failure=pytest.fail,
        )

    def _on_event(self, event: Event) -> None:
        self.events.append(event)
        self._changed.set()
        if self.breaks_on is not None and isinstance(event, self.breaks_on):
            raise ZeroDivisionError("a bug")

    async def until(self, kind: type[T], wanted: Callable[[T], bool] = lambda _: True) -> T:
        """Return the first event of this kind, once there is one."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for event in self.events:
                    if isinstance(event, kind) and wanted(event):
                        return event
                await self.next_event()

    async def next_event(self) -> None:
        """Wait for an event."""
        self._changed.clear()
        await self._changed.wait()

    def close(self) -> None:
        self.engine.close()
        self.registry.close()


@pytest.fixture
async def owners() -> AsyncIterator[tuple[Owner, Owner]]:
    one, two = Owner(), Owner()
    try:
        yield one, two
    finally:
        one.close()
        two.close()


async def connected(one: Owner, two: Owner) -> tuple[int, int]:
    number = one.engine.connect(two.engine.address, family=socket.AF_INET, name="two")
    await one.until(PeerOpened, lambda event: event.peer == number)
    opened = await two.until(
        PeerOpened, lambda event: all(event.peer != end.peer for end in two.events if isinstance(end, PeerEnded))
    )
    return number, opened.peer


async def test_post__a_send_and_a_write(owners: tuple[Owner, Owner]) -> None:
    one, two = owners
    payload = content(MIB, seed=SEED)
    here, there = await connected(one, two)
    with memory(payload) as source, Region(MIB) as target:
        rights = Access.REMOTE_WRITE | Access.LOCAL_WRITE
        remote = two.registry.register(target, offset=0, length=MIB, access=rights, peers=frozenset((there,)))
        one.engine.post(here, WorkRequest(7, MIB, source.address, immediate=5))
        one.engine.post(here, WorkRequest(8, MIB, source.address, Opcode.WRITE, immediate=6, key=remote.remote_key))
        assert (await one.until(Completion, lambda event: event.request == 7)).status is Status.OK
        assert (await one.until(Completion, lambda event: event.request == 8)).status is Status.OK
        message, written = await two.until(MessageReceived), await two.until(WriteReceived)
        assert (message.immediate, written.immediate) == (5, 6)
        assert b"".join(two.engine.queues.view(extent) for extent in message.extents) == payload
        assert target.array.tobytes() == payload
        two.engine.release(there, message.extents, message.length, 1)
        two.registry.deregister(remote)


async def test_post__after_the_end_completes_at_once(owners: tuple[Owner, Owner]) -> None:
    one, two = owners
    here, _ = await connected(one, two)
    one.engine.close_peer(here)
    assert (await one.until(PeerEnded)).status is Status.OK
    one.engine.post(here, WorkRequest(1, 0))
    assert (await one.until(Completion)).status is Status.LOCAL_ERROR_INVALID_AH


async def test_post__before_the_peer_is_open_bad_flow(owners: tuple[Owner, Owner]) -> None:
    one, two = owners
    number = one.engine.connect(two.engine.address, family=socket.AF_INET, name="two")
    with pytest.raises(UsageError, match="not open"):
        one.engine.post(number, WorkRequest(1, 0))


async def test_on_event__an_exception_ends_only_the_peer_of_the_event(owners: tuple[Owner, Owner]) -> None:
    one, two = owners
    problems: list[BaseException | None] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context.get("exception")))
    here, there = await connected(one, two)
    two.breaks_on = MessageReceived
    one.engine.post(here, WorkRequest(1, 0))
    ended = await two.until(PeerEnded)
    assert (ended.peer, ended.status) == (there, Status.LOCAL_ERROR_QP_INTERNAL_ERROR)
    assert [type(problem) for problem in problems] == [ZeroDivisionError]
    two.breaks_on = None
    again, _ = await connected(one, two)
    assert again != here


async def test_on_event__memory_of_an_aborted_message_is_freed(owners: tuple[Owner, Owner]) -> None:
    one, two = owners
    here, there = await connected(one, two)
    with memory(content(MIB, seed=SEED)) as source:
        one.engine.post(here, WorkRequest(1, MIB, source.address))
        message = await two.until(MessageReceived)
        two.engine._take_event(MessageAborted(there, message.extents))
        for extent in message.extents:
            with pytest.raises(PoolError):
                two.engine.queues.view(extent)
        await one.until(Completion)


async def test_close__ends_every_peer_and_leaves_nothing_open() -> None:
    before = open_files()
    one, two = Owner(), Owner()
    here, _ = await connected(one, two)
    one.close()
    assert [event.peer for event in one.events if isinstance(event, PeerEnded)] == [here]
    await two.until(PeerEnded)
    two.close()
    assert open_files() == before


async def test_init__an_address_of_another_host_bad_flow() -> None:
    before = open_files()
    with pytest.raises(SrdError, match=r"^192.0.2.1:7: cannot be bound: "):
        Engine(
            SMALL, ("192.0.2.1", 7), family=socket.AF_INET, accepting=True, memory=Registry(),
            on_event=print, on_failure=print,
        )  # fmt: skip
    assert open_files() == before


@pytest.mark.sources
@pytest.mark.parametrize(
    ("code", "said"),
    [
        (errno.EMFILE, "2 of the 4 sockets that 4 paths need could be opened: Too many open files; raise ulimit -n"),
        (errno.EADDRINUSE, "2 of the 4 sockets that 4 paths need could be opened: too few free ports; raise net.ipv4"),
    ],
)
async def test_init__what_is_short_is_named_and_not_the_address_bad_flow(
    monkeypatch: pytest.MonkeyPatch, code: int, said: str
) -> None:
    opened: list[socket.socket] = []

    def open_few(address: Address, *, family: socket.AddressFamily) -> socket.socket:
        if len(opened) == 2:
            raise OSError(code, os.strerror(code))
        opened.append(open_socket(address, family=family))
        return opened[-1]

    monkeypatch.setattr(srd.engine, "open_socket", open_few)
    with pytest.raises(SrdError, match=f"^{re.escape(said)}"):
        await Endpoint.listen("127.0.0.1", 0, config=SMALL)
    assert all(sock.fileno() == -1 for sock in opened), "closed"
