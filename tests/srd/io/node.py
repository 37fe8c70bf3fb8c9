"""An endpoint without its application: a core, a driver, sockets, and the events."""

from __future__ import annotations

import asyncio
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

    def post(self, peer: int, *, request: int, offset: int, length: int) -> None:
        self.core.post(peer, WorkRequest(request=request, payload_offset=self.outgoing.address + offset, length=length))
        self.driver.wake()

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


async def open_pair(one: Node, two: Node) -> int:
    number = one.connect(two.sockets[0].getsockname())
    await one.until(opened)
    return number


async def accepted(two: Node) -> int:
    """Return the number of the peer that has opened."""
    (event,) = await two.until(opened)
    assert isinstance(event, PeerOpened)
    return event.peer


def fill(one: Node, size_bytes: int) -> bytes:
    payload = content(size_bytes, seed=SEED)
    with one.outgoing.view(0, length=size_bytes) as view:
        view[:] = payload
    return payload
