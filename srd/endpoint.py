"""A local endpoint on real sockets: opens peers, accepts them, and owns the memory that messages land in."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self, cast

from mypy_extensions import mypyc_attr

from devmem.errors import RegionError
from devmem.refill import RefillRing
from devmem.region import Region
from devmem.registry import Access, Registration, Registry
from srd.batch import MessageBatch
from srd.completions import Completed, CompletionQueue
from srd.config import EndpointConfig
from srd.errors import PeerError, SrdError
from srd.io.driver import Driver
from srd.io.libc import Address
from srd.io.socket import IP_UDP_BYTES, open_socket, route_mtu
from srd.message import Message, Written
from srd.peer import Peer
from srd.proto.endpoint import EndpointCore
from srd.proto.events import (
    BatchCompletion,
    Completion,
    Event,
    Frag,
    MessageReceived,
    MessagesReceived,
    MessageVoided,
    PeerEnded,
    PeerOpened,
    WriteReceived,
)
from srd.proto.status import Status
from srd.proto.trace import Trace
from srd.queues import ReceiveQueues, RxQueue

FALLBACK_MTUS = (1500, 1280)
"""Tried when the route's own MTU is not answered: Ethernet's, and the least that IPv6 promises."""


async def resolve(host: str, *, port: int, passive: bool) -> tuple[socket.AddressFamily, Address]:
    """Return family and address of `host`. Raises SrdError naming it."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host or None, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE if passive else 0
        )
    except (socket.gaierror, UnicodeError) as error:
        why = error.strerror if isinstance(error, socket.gaierror) else "not a name"
        raise SrdError(f"{host}: unknown host ({why}); check the name or give an address") from error
    family, _, _, _, address = found[0]
    return socket.AddressFamily(family), cast("Address", address)


@mypyc_attr(native_class=False)  # compiled, too, it is an ordinary class: for subclasses, weak references and mocks
class Endpoint:
    """`await Endpoint.listen(...)` or `await Endpoint.open()`; an async context manager."""

    def __init__(
        self,
        config: EndpointConfig,
        *,
        sockets: list[socket.socket],
        open_another: Callable[[], socket.socket],
        accepting: bool,
        trace: Trace | None,
    ) -> None:
        self.config = config
        self.address: tuple[str, int] = sockets[0].getsockname()[:2]
        self._family = sockets[0].family
        self._registry = Registry()
        # First what may refuse the configuration, then what must be given back.
        self._core = EndpointCore(
            config.protocol,
            datagram_bytes=config.datagram_bytes,
            secret=os.urandom(32),
            new_context=lambda: int.from_bytes(os.urandom(8), "big"),
            rng=random.Random(os.urandom(16)),  # noqa: S311 - chooses paths, not secrets
            accepting=accepting,
            trace=trace,
            memory=self._registry,
        )
        self._region = Region(config.receive_region_bytes, name="srd-receive")
        self._queues = ReceiveQueues(config, self._region, first=sockets[0])
        self._driver = Driver(
            self._core,
            sockets=sockets,
            queue=self._queues.host,
            open_socket=open_another,
            busy_poll=config.busy_poll,
            stay_awake_s=config.stay_awake_s,
            on_event=self._on_event,
            on_failure=self._on_failure,
        )
        self._queues.start(self._driver)
        self._peers: dict[int, Peer] = {}
        self._opening: dict[int, asyncio.Future[Peer]] = {}
        self.completions = CompletionQueue()
        """Of what was posted many at a time (`Peer.post_send`), to all peers."""
        self._incoming: asyncio.Queue[Peer | None] = asyncio.Queue()  # None: no more will come

    @classmethod
    async def listen(
        cls, host: str, *, port: int, config: EndpointConfig | None = None, trace: Trace | None = None
    ) -> Self:
        """Open an endpoint that others may connect to. Raises SrdError when the address cannot be had.

        `trace` is told what happens to every peer, at times of `time.monotonic()`; it stays the caller's to close.
        """
        family, address = await resolve(host, port=port, passive=True)
        return cls._open(config or EndpointConfig(), address, family=family, accepting=True, trace=trace)

    @classmethod
    async def open(cls, *, towards: str, config: EndpointConfig | None = None, trace: Trace | None = None) -> Self:
        """Open an endpoint that only connects, of the address family of host `towards`; `trace` as in `listen`."""
        family, _ = await resolve(towards, port=0, passive=False)
        anywhere = ("::", 0) if family == socket.AF_INET6 else ("0.0.0.0", 0)  # noqa: S104 - any source address
        return cls._open(config or EndpointConfig(), anywhere, family=family, accepting=False, trace=trace)

    @classmethod
    def _open(
        cls,
        config: EndpointConfig,
        address: Address,
        *,
        family: socket.AddressFamily,
        accepting: bool,
        trace: Trace | None,
    ) -> Self:
        sockets: list[socket.socket] = []
        try:
            sockets.append(open_socket(address, family=family))
            # The other paths need a source port of their own, not a known one; their address is the first's.
            another = partial(open_socket, (*address[:1], 0, *address[2:]), family=family)
            sockets += [another() for _ in range(config.protocol.paths - 1)]
            return cls(config, sockets=sockets, open_another=another, accepting=accepting, trace=trace)
        except BaseException as error:
            for sock in sockets:
                sock.close()
            if isinstance(error, OSError):
                raise SrdError(f"{address[0]}:{address[1]}: cannot be bound: {error.strerror}") from error
            raise

    # -- peers --------------------------------------------------------------------------------------------------

    async def connect(self, host: str, *, port: int) -> Peer:
        """Open a peer. Raises PeerError when it does not answer or refuses, SrdError for an unknown host."""
        family, address = await resolve(host, port=port, passive=False)
        try:
            mtu = route_mtu(address, family=family)
        except OSError as error:
            raise SrdError(f"{host}: no route to it ({error.strerror}); check the address") from error
        largest = min(mtu - IP_UDP_BYTES[family], self.config.datagram_bytes)
        smaller = (size - IP_UDP_BYTES[family] for size in FALLBACK_MTUS)
        sizes = (largest, *(size for size in smaller if size < largest))
        number = self._core.connect(address, sizes=sizes, now=time.monotonic())
        future: asyncio.Future[Peer] = asyncio.get_running_loop().create_future()
        self._opening[number] = future
        self._driver.wake()
        return await future

    async def accept(self) -> Peer:
        """Return the next peer that was opened from outside. Raises SrdError once the endpoint is closed."""
        peer = await self._incoming.get()
        if peer is None:
            self._incoming.put_nowait(None)
            raise SrdError("the endpoint is closed")
        return peer

    def post(self, peer: int, *, request: int, **work_request: Any) -> None:
        """Queue a work request, as `EndpointCore.post` takes it; places are addresses in this process. For `Peer`."""
        self._core.post(peer, request=request, **work_request)
        self._driver.wake()

    def post_batch(self, peer: int, **work_requests: Any) -> None:
        """Queue sends, as `EndpointCore.post_batch` takes them. For `Peer`."""
        self._core.post_batch(peer, **work_requests)
        self._driver.wake()

    def cancel(self, peer: int, *, request: int) -> None:
        """End a request with FLUSHED; for `Peer`."""
        self._core.cancel(peer, request=request, now=time.monotonic())
        self._driver.wake()

    def close_peer(self, peer: int) -> None:
        """Begin to close a peer; for `Peer`."""
        if peer in self._peers:
            self._core.close(peer, now=time.monotonic())
            self._driver.wake()

    # -- registered memory --------------------------------------------------------------------------------------------

    def register(self, region: Region, *, offset: int, length: int, access: Access) -> Registration:
        """Let peers that are told its remote key read or write `length` bytes of `region` from `offset`.

        Raises RegionError for a range out of bounds, RegistrationError for rights that cannot be.
        """
        return self._registry.register(region, offset=offset, length=length, access=access)

    def deregister(self, registration: Registration) -> None:
        """Withdraw a registration at once: what uses it ends in error, at both ends. The memory is yours again.

        Raises RegistrationError for one that is not (any more) registered here.
        """
        self._registry.deregister(registration)
        for key in (registration.local_key, registration.remote_key):
            self._core.revoke(key, now=time.monotonic())
        self._driver.drop_unsent()
        self._driver.wake()

    # -- device memory ----------------------------------------------------------------------------------------------

    def bind_rx(self, region: Region, *, chunk_bytes: int | None = None) -> RxQueue:
        """Bind a receive queue to `region`: what is steered to it lands there, and nowhere else.

        `chunk_bytes`, by default the endpoint's, is the piece that is reused as a whole. Raises UsageError where header
        split is off and for too small a region, PoolError for a read-only one, SrdError where the kernel cannot.
        """
        return self._queues.bind(region, chunk_bytes=chunk_bytes or self.config.chunk_bytes)

    def dontneed(self, token_ranges: Sequence[tuple[int, int]]) -> int:
        """Return frags by ranges (first token, count); say how many were freed. As SO_DEVMEM_DONTNEED.

        At most 128 ranges (else PoolError) and 1,024 tokens a call; unknown ones are skipped.
        """
        return self._queues.tokens.dontneed(token_ranges)

    def give_back(self, token: int) -> None:
        """Return one frag. Raises PoolError if it was returned before, or is another endpoint's."""
        self._queues.tokens.give_back(token)

    def refill_ring(self, *, entries: int = 4096) -> RefillRing:
        """Make a ring that returns frags without a call, from any thread; `ring.region` from another process.

        It is looked at before each batch that is received.
        """
        return self._queues.refill_ring(entries)

    # -- events -------------------------------------------------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        match event:
            case MessageReceived():
                message = Message(event, queues=self._queues, release=self._release)
                self._peers[event.peer].deliver(message)
            case MessagesReceived():
                batch = MessageBatch(event, queues=self._queues, release=self._release)
                self._peers[event.peer].deliver(batch)
            case BatchCompletion():
                peer = self._peers[event.peer]
                self.completions.push(Completed(peer, event.request, event.count, Status.OK))
            case MessageVoided():
                self._queues.drop(event.orphans)
            case WriteReceived():
                self._peers[event.peer].deliver_write(Written(event.length, event.immediate))
            case Completion():
                peer = self._peers[event.peer]
                if not peer.complete(event.request, status=event.status):  # posted with many
                    self.completions.push(Completed(peer, event.request, 1, event.status))
            case PeerOpened():
                peer = self._peers[event.peer] = Peer(self, self._core.peer(event.peer))
                if event.incoming:
                    self._incoming.put_nowait(peer)
                elif not (future := self._opening.pop(event.peer)).done():
                    future.set_result(peer)
            case PeerEnded():
                self._on_ended(event)

    def _on_ended(self, event: PeerEnded) -> None:
        self._queues.drop(event.orphans)
        if peer := self._peers.pop(event.peer, None):
            self._queues.forget_peer(peer.context)
            peer.end()
        elif (future := self._opening.pop(event.peer, None)) and not future.done():
            future.set_exception(PeerError(event.reason, status=event.status))

    def _on_failure(self, error: Exception) -> None:
        """Our own fault: nobody may wait for what will never come."""
        for number, peer in list(self._peers.items()):
            self._core.peer(number).end(Status.LOCAL_ERROR_QP_INTERNAL_ERROR, reason=f"internal error: {error!r}")
            peer.fail_requests(Status.LOCAL_ERROR_QP_INTERNAL_ERROR)
            peer.end()
        self._peers.clear()
        self._turn_away(f"internal error: {error!r}")

    def _turn_away(self, reason: str) -> None:
        """Wake who waits for a peer to be opened: none will be."""
        self._incoming.put_nowait(None)
        for future in self._opening.values():
            if not future.done():
                future.set_exception(PeerError(reason, status=Status.FLUSHED))
        self._opening.clear()
        self.completions.close()

    def release_write(self, peer: int) -> None:
        """Take back the credit of a write that the application has been told of; for `Peer`."""
        self._release(peer, (), 0, 1)

    def _release(self, peer: int, frags: Sequence[Frag], size_bytes: int, messages: int) -> None:
        """Take pieces back from the application: memory, and the credit of so many bytes and messages."""
        self._queues.drop(frags)
        self._core.release(peer, size_bytes=size_bytes, messages=messages, now=time.monotonic())
        self._driver.wake()

    # -- life ---------------------------------------------------------------------------------------------------

    @property
    def bytes_copied(self) -> int:
        """Payload bytes that were copied: on the slower path, into registered memory, and by `Message.gather`."""
        return self._queues.bytes_copied

    @property
    def linear_bytes(self) -> int:
        """Payload that landed in host memory, as no rule steered it to a bound region."""
        return self._queues.host.landed_bytes

    @property
    def dropped_packets(self) -> int:
        """Datagrams that this host dropped: full socket buffers, and no free memory in the region."""
        return self._driver.dropped_packets() + self._queues.refused_packets

    async def close(self) -> None:
        """Close every peer in an orderly way, then the sockets, and give the memory back."""
        await asyncio.gather(*(peer.close() for peer in list(self._peers.values())))
        self._driver.close()
        self._turn_away("the endpoint was closed")
        self._registry.close()
        self._queues.close()
        with suppress(RegionError):  # the application still looks at a message: the memory goes with its last view
            self._region.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
