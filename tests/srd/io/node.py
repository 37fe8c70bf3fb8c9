"""An endpoint without its application: a core, a driver, sockets, and the events."""

from __future__ import annotations

import asyncio
import itertools
import random
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from devmem.region import Region
from srd.io.allowance import Allowance
from srd.io.driver import Driver
from srd.io.socket import open_socket
from srd.io.syscalls import Address
from srd.proto.config import ProtocolConfig
from srd.proto.endpoint.core import EndpointCore
from srd.proto.events import Completion, Event, MessageReceived, PeerEnded, PeerOpened
from srd.proto.work_request import WorkRequest
from tests.patience import PATIENCE_S
from tests.srd.io.exchange import LOOPBACK, Receiver, content

SEED = 13


class Node(Receiver):
    """A core, a driver, and the memory of both directions; events are kept, and waited for by `until`."""

    def __init__(
        self,
        *,
        sockets: list[socket.socket],
        accepting: bool,
        paths: int,
        adaptive_poll_s: float = 0,
        allowance: Allowance | None = None,
    ) -> None:
        super().__init__(chunks=40)
        self.socket.close()
        self.sockets = sockets
        self.outgoing = Region(4 << 20)
        self.events: list[Event] = []
        self.reacts: Callable[[Event], None] = lambda _: None
        """What the application does in the turn that delivers an event."""
        self.failures: list[Exception] = []
        self.peer = -1
        """The peer that has opened: these tests have one."""
        self._requests = itertools.count()
        self._changed = asyncio.Event()
        rng = random.Random(SEED)
        self.core = EndpointCore(
            ProtocolConfig(paths=paths, receive_window_bytes=8 << 20, max_message_bytes=4 << 20),
            datagram_bytes=8972,
            secret=rng.randbytes(32),
            new_context=lambda: rng.getrandbits(64),
            rng=rng,
            accepting=accepting,
        )
        self.driver = Driver(
            self.core, sockets=sockets, queue=self.queue, adaptive_poll_s=adaptive_poll_s, allowance=allowance,
            open_socket=lambda: loopback_sockets(1)[0], on_event=self.on_event, on_failure=self.on_failure,
        )  # fmt: skip

    def on_event(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, PeerOpened):
            self.peer = event.peer
        self._changed.set()
        self.reacts(event)

    def on_failure(self, error: Exception) -> None:
        """An error of the driver fails the waiting test at once."""
        self.failures.append(error)
        self._changed.set()

    async def until(self, wanted: Callable[[Event], bool], *, count: int = 1) -> list[Event]:
        async with asyncio.timeout(PATIENCE_S):
            while len(found := [event for event in self.events if wanted(event)]) < count:
                assert not self.failures, self.failures[0]
                self._changed.clear()
                await self._changed.wait()
        return found

    def connect(self, address: Address) -> int:
        number = self.core.connect(address, sizes=(8972, 1252), now=time.monotonic())
        self.driver.wake()
        return number

    def post(self, length: int) -> None:
        """Send the beginning of the region to the peer; requests are numbered from 0."""
        request = WorkRequest(request=next(self._requests), payload_offset=self.outgoing.address, length=length)
        self.core.post(self.peer, request)
        self.driver.wake()

    async def post_in_turn(self, count: int, length: int) -> None:
        """Send so many messages, each when the one before it has completed."""
        completions = sum(map(completed, self.events))
        for number in range(count):
            self.post(length)
            await self.until(completed, count=completions + number + 1)

    async def the_message(self) -> MessageReceived:
        """Wait for a message, the only one."""
        (event,) = await self.until(received)
        assert isinstance(event, MessageReceived)
        return event

    async def end(self) -> PeerEnded:
        (event,) = await self.until(ended)
        assert isinstance(event, PeerEnded)
        return event

    def body(self, event: MessageReceived) -> bytes:
        view = self.region.array
        return b"".join(
            view[extent.region_offset : extent.region_offset + extent.length].tobytes() for extent in event.extents
        )


def opened(event: Event) -> bool:
    return isinstance(event, PeerOpened)


def received(event: Event) -> bool:
    return isinstance(event, MessageReceived)


def completed(event: Event) -> bool:
    return isinstance(event, Completion)


def ended(event: Event) -> bool:
    return isinstance(event, PeerEnded)


def loopback_sockets(count: int) -> list[socket.socket]:
    return [open_socket(LOOPBACK[socket.AF_INET], family=socket.AF_INET) for _ in range(count)]


@asynccontextmanager
async def node(
    *,
    accepting: bool,
    paths: int = 4,
    sockets: list[socket.socket] | None = None,
    adaptive_poll_s: float = 0,
    allowance: Allowance | None = None,
) -> AsyncIterator[Node]:
    made = Node(
        sockets=sockets or loopback_sockets(paths), accepting=accepting, paths=paths,
        adaptive_poll_s=adaptive_poll_s, allowance=allowance,
    )  # fmt: skip
    try:
        yield made
    finally:
        made.driver.close()
        made.pool.release()
        made.region.close()
        made.outgoing.close()


@asynccontextmanager
async def nodes(
    *,
    paths: int = 4,
    poll_s: tuple[float, float] = (0, 0),
    allowances: tuple[Allowance | None, Allowance | None] = (None, None),
) -> AsyncIterator[tuple[Node, Node]]:
    """Give two nodes, of which the first has connected to the second."""
    async with (
        node(accepting=True, paths=paths, adaptive_poll_s=poll_s[1], allowance=allowances[1]) as two,
        node(accepting=False, paths=paths, adaptive_poll_s=poll_s[0], allowance=allowances[0]) as one,
    ):
        await join(one, two)
        yield one, two


async def join(one: Node, two: Node) -> None:
    """Have the first connect to the second."""
    one.connect(two.sockets[0].getsockname())
    for each in (one, two):
        await each.until(opened)


def fill(one: Node, size_bytes: int) -> bytes:
    payload = content(size_bytes, seed=SEED)
    with one.outgoing.view(0, length=size_bytes) as view:
        view[:] = payload
    return payload
