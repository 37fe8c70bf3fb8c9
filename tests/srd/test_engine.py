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
from devmem.registry import Registry
from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.engine import Engine
from srd.errors import SrdError
from srd.io.socket import open_socket
from srd.io.syscalls import Address
from srd.proto.events import Completion, Event, MessageAborted, MessageReceived, PeerEnded, PeerOpened
from srd.proto.memory import Destinations
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
