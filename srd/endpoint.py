"""A local endpoint on real sockets: opens peers, accepts them, and owns the memory that messages land in."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from types import TracebackType
from typing import Any, Self, cast

from mypy_extensions import mypyc_attr

from devmem.errors import RegionError
from devmem.refill import RefillRing
from devmem.region import Region
from devmem.registry import Access, Registration, Registry
from srd.batch import MessageBatch
from srd.completion import CompletionQueue, WorkCompletion
from srd.config import EndpointConfig
from srd.errors import PeerError, SrdError, UsageError
from srd.io.addresses import canonical, host_port_text, host_text, split_zone
from srd.io.driver import Driver
from srd.io.socket import IP_UDP_BYTES, open_socket, route_mtu
from srd.io.syscalls import Address
from srd.message import Message, WriteNotification
from srd.notify import Notify
from srd.peer import Peer
from srd.proto.core import EndpointCore
from srd.proto.events import (
    BatchCompletion,
    Completion,
    Event,
    Frag,
    MessageAborted,
    MessageReceived,
    MessagesReceived,
    PeerEnded,
    PeerOpened,
    WriteReceived,
)
from srd.proto.trace import Trace
from srd.proto.wire.data import MIN_DATAGRAM_BYTES
from srd.proto.wire.status import Status
from srd.rx_queues import RxQueue, RxQueueTable

FALLBACK_MTUS = (1500, 1280)
"""Tried when the route's own MTU is not answered: Ethernet's, and the least that IPv6 promises."""

CLOSES_PER_TURN = 100
"""CLOSEs that surely leave in one turn of the driver."""


async def resolve(host: str, *, port: int, passive: bool) -> tuple[socket.AddressFamily, Address]:
    """Return family and address of `host`, which may be of a link (fe80::1%eth0). Raises SrdError naming it."""
    try:
        name, scope = split_zone(host)  # uvloop would forget the zone
    except OSError as error:
        raise SrdError(f"{host}: no such interface; `ip link` lists them") from error
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            name or None, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE if passive else 0
        )
    except (socket.gaierror, UnicodeError) as error:
        why = error.strerror if isinstance(error, socket.gaierror) else "not a name"
        raise SrdError(f"{host}: unknown host ({why}); check the name or give an address") from error
    family, _, _, _, address = found[0]
    return socket.AddressFamily(family), canonical(cast("Address", address), scope=scope)


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
        bound = canonical(sockets[0].getsockname())
        self.address: tuple[str, int] = (host_text(bound), bound[1])
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
        self._queues = RxQueueTable(config, self._region, first=sockets[0], contexts=self._core.contexts)
        self._driver = Driver(
            self._core,
            sockets=sockets,
            queue=self._queues.host,
            open_socket=open_another,
            busy_poll=config.busy_poll,
            adaptive_poll_s=config.adaptive_poll_s,
            on_event=self._take_event,
            on_failure=self._on_failure,
        )
        self._queues.start(self._driver)
        self._end_reason: str | None = None  # nothing new may be begun
        self._closing = self._closed = False
        self._closed_now = Notify()
        self._peers: dict[int, Peer] = {}
        self._opening: dict[int, asyncio.Future[Peer]] = {}
        self.completions = CompletionQueue()
        """Of what was posted many at a time (`Peer.post_send`), to all peers."""
        self._incoming: dict[int, Peer] = {}  # opened from outside and not accepted yet, in order
        self._arrived = Notify()  # for a change of the former, or for the end
        self._rejects_incoming = False  # no more will come
        self._closing_peers: set[asyncio.Task[None]] = set()  # of peers that nobody asks for any more

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
                where = host_port_text(host_text(address), address[1])
                raise SrdError(f"{where}: cannot be bound: {error.strerror}") from error
            raise

    # -- peers --------------------------------------------------------------------------------------------------

    async def connect(self, host: str, *, port: int) -> Peer:
        """Open a peer. Raises PeerError when it does not answer or refuses, SrdError for an unknown host.

        One that the other end closes at once is returned all the same: it may have sent something before. Whoever
        cancels this, by a timeout for example, has no peer: one that is opened meanwhile is closed.
        """
        self._check_open()
        family, address = await resolve(host, port=port, passive=False)
        self._check_open()
        try:
            mtu = route_mtu(address, family=family)
        except OSError as error:
            raise SrdError(f"{host}: no route to it ({error.strerror}); check the address") from error
        if (least := MIN_DATAGRAM_BYTES + IP_UDP_BYTES[family]) > mtu:
            raise SrdError(
                f"{host}: the route's MTU is {mtu} bytes; SRD needs at least {least} ({MIN_DATAGRAM_BYTES}-byte "
                "datagrams); raise the MTU of the interface"
            )
        largest = min(mtu - IP_UDP_BYTES[family], self.config.datagram_bytes)
        smaller = (size - IP_UDP_BYTES[family] for size in FALLBACK_MTUS)
        sizes = (largest, *(size for size in smaller if size < largest))
        number = self._core.connect(address, sizes=sizes, now=time.monotonic())
        future: asyncio.Future[Peer] = asyncio.get_running_loop().create_future()
        self._opening[number] = future
        self._driver.wake()
        try:
            return await future
        except asyncio.CancelledError:
            self._abandon(number)
            raise

    def _abandon(self, number: int) -> None:
        """Close a peer that was being opened, or was opened in this very moment."""
        self._opening.pop(number, None)
        if (peer := self._peers.get(number)) is not None:
            self._close_peer_later(peer)
            return
        with suppress(UsageError):  # it is gone
            self._core.close(number, now=time.monotonic())
            self._driver.wake()

    def _close_peer_later(self, peer: Peer) -> None:
        """Close a peer that nobody will, and release what it has sent."""
        task = asyncio.ensure_future(peer.close())
        self._closing_peers.add(task)
        task.add_done_callback(self._closing_peers.discard)

    async def accept(self) -> Peer:
        """Return the next peer that was opened from outside. Raises SrdError once the endpoint is closed.

        One that has ended meanwhile is left out, unless it has sent something that waits to be received.
        """
        self._check_open()
        while not self._incoming:
            if self._rejects_incoming:
                raise SrdError("the endpoint is closed")
            await self._arrived.wait()
        number = next(iter(self._incoming))
        self._core.accepted(number)
        return self._incoming.pop(number)

    def post(self, peer: int, *, request: int, **work_request: Any) -> None:
        """Queue a work request, as `EndpointCore.post` takes it; places are addresses in this process. For `Peer`."""
        self._core.post(peer, request=request, **work_request)
        self._driver.wake()

    def post_batch(self, peer: int, **work_requests: Any) -> None:
        """Queue sends, as `EndpointCore.post_batch` takes them. For `Peer`."""
        self._core.post_batch(peer, **work_requests)
        self._driver.wake()

    def cancel(self, peer: int, *, request: int) -> None:
        """End a request with FLUSHED; its memory is not read any more. For `Peer`."""
        self._core.cancel(peer, request=request, now=time.monotonic())
        self._driver.drop_unsent()
        self._driver.wake()

    def close_peer(self, peer: int) -> None:
        """Begin to close a peer; for `Peer`."""
        with suppress(UsageError):  # it is gone
            self._core.close(peer, now=time.monotonic())
            self._driver.wake()

    def flush_peer(self, peer: int) -> None:
        """End a peer's open requests with FLUSHED; for `Peer`."""
        self._core.flush(peer, now=time.monotonic())
        self._driver.wake()

    def abandon(self, peers: Sequence[int]) -> None:
        """Part from peers at once, in a word that nobody waits to see confirmed; what is open ends with FLUSHED."""
        now = time.monotonic()
        for peer in peers:
            self.close_peer(peer)
            self._core.flush(peer, now=now)
        for _ in peers[::CLOSES_PER_TURN]:
            self._driver.flush()
        for peer in peers:
            self._core.abandon(peer, status=Status.OK, reason="closed; the other end did not confirm", now=now)
        self._driver.flush()

    def _check_open(self) -> None:
        if self._end_reason is not None:
            raise SrdError(self._end_reason)

    # -- registered memory --------------------------------------------------------------------------------------------

    def register(self, region: Region, *, offset: int, length: int, access: Access) -> Registration:
        """Let peers that are told its remote key read or write `length` bytes of `region` from `offset`.

        Raises RegionError for a range out of bounds, RegistrationError for rights that cannot be.
        """
        self._check_open()
        return self._registry.register(region, offset=offset, length=length, access=access)

    def deregister(self, registration: Registration) -> None:
        """Withdraw a registration at once: what uses it ends in error, at both ends. The memory is yours again.

        Raises RegistrationError for one that is not (any more) registered here.
        """
        self._registry.deregister(registration)
        for key in (registration.local_key, registration.remote_key):
            self._core.on_deregistered(key, now=time.monotonic())
        self._driver.drop_unsent()
        self._driver.wake()

    # -- device memory ----------------------------------------------------------------------------------------------

    def bind_rx(self, region: Region, *, chunk_bytes: int | None = None) -> RxQueue:
        """Bind a receive queue to `region`: what is steered to it lands there, and nowhere else.

        `chunk_bytes`, by default the endpoint's, is the piece that is reused as a whole. Raises UsageError where header
        split is off and for too small a region, PoolError for a read-only one, SrdError where the kernel cannot.
        """
        self._check_open()
        return self._queues.bind(region, chunk_bytes=chunk_bytes or self.config.chunk_bytes)

    def dontneed(self, token_ranges: Sequence[tuple[int, int]]) -> int:
        """Return frags by ranges (first token, count); say how many were freed. As SO_DEVMEM_DONTNEED.

        At most 128 ranges (else PoolError) and 1,024 tokens a call; unknown ones are skipped.
        """
        return self._queues.tokens.dontneed(token_ranges)

    def return_token(self, token: int) -> None:
        """Return one frag. Raises PoolError if it was returned before, or is another endpoint's."""
        self._queues.tokens.give_back(token)

    def refill_ring(self, *, entries: int = 4096) -> RefillRing:
        """Make a ring that returns frags without a call, from any thread; `ring.region` from another process.

        It is looked at before each batch that is received.
        """
        self._check_open()
        return self._queues.refill_ring(entries)

    # -- events -------------------------------------------------------------------------------------------------

    def _take_event(self, event: Event) -> None:
        """Pass an event on. What goes wrong in that is no matter of the other peers."""
        try:
            self._on_event(event)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            self._fail_peer(event, error)

    def _fail_peer(self, event: Event, error: Exception) -> None:
        status, reason = Status.LOCAL_ERROR_QP_INTERNAL_ERROR, f"internal error: {error!r}"
        asyncio.get_running_loop().call_exception_handler({"message": f"{event}: {reason}", "exception": error})
        self._core.abandon(event.peer, status=status, reason=reason, now=time.monotonic())

    def _on_event(self, event: Event) -> None:
        """What concerns a peer that this end knows no more concerns nobody."""
        if isinstance(event, PeerOpened):
            self._on_opened(event)
            return
        if isinstance(event, PeerEnded):
            self._on_ended(event)
            return
        peer = self._peers.get(event.peer)
        match event:
            case MessageReceived():
                message = Message(event, queues=self._queues, release=self._release)
                if peer is None:
                    message.release()
                else:
                    peer.deliver(message)
            case MessagesReceived():
                batch = MessageBatch(event, queues=self._queues, release=self._release)
                if peer is None:
                    batch.abandon()
                else:
                    peer.deliver(batch)
            case BatchCompletion() if peer is not None:
                self.completions.push(WorkCompletion(peer, event.request, event.count, Status.OK))
            case MessageAborted():
                self._queues.drop(event.released)
            case WriteReceived() if peer is not None:
                peer.deliver_write(WriteNotification(event.length, event.immediate))
            case Completion() if peer is not None:
                if not peer.complete(event.request, status=event.status):  # posted with many
                    self.completions.push(WorkCompletion(peer, event.request, 1, event.status))

    def _on_opened(self, event: PeerOpened) -> None:
        peer = self._peers[event.peer] = Peer(self, self._core.peer(event.peer))
        if event.incoming:
            self._incoming[event.peer] = peer
            self._arrived.notify()
            return
        future = self._opening.pop(event.peer, None)
        if future is None or future.done():
            self._close_peer_later(peer)
        else:
            future.set_result(peer)

    def _on_ended(self, event: PeerEnded) -> None:
        peer = self._peers.pop(event.peer, None)
        try:
            self._queues.drop(event.released)
            if peer is not None:
                self._queues.forget_peer(peer.context)
        finally:  # whatever goes wrong here, nobody waits for that peer any longer
            if peer is not None:
                peer.end()
                if event.peer in self._incoming and not peer.has_unreceived:
                    del self._incoming[event.peer]
                    self._core.accepted(event.peer)  # its place is free
            elif (future := self._opening.pop(event.peer, None)) and not future.done():
                future.set_exception(PeerError(event.reason, status=event.status))

    def _on_failure(self, error: Exception) -> None:
        """Our own fault: nobody may wait for what will never come."""
        status, reason = Status.LOCAL_ERROR_QP_INTERNAL_ERROR, f"internal error: {error!r}"
        self._end_reason = reason
        with suppress(Exception):  # it may be the core that is broken
            for number in list(self._peers):
                self._core.abandon(number, status=status, reason=reason, now=time.monotonic())
            self._deliver_rest()
        for peer in self._peers.values():
            peer.fail_requests(status)
            peer.end()
        self._peers.clear()
        self._reject_incoming(reason)
        self.completions.close()

    def _deliver_rest(self) -> None:
        """Pass on what the core has to tell when its driver does so no more."""
        while (event := self._core.poll_event()) is not None:
            self._take_event(event)

    def _reject_incoming(self, reason: str) -> None:
        """Wake who waits for a peer to be opened: none will be."""
        self._rejects_incoming = True
        self._incoming.clear()
        self._arrived.notify()
        for future in self._opening.values():
            if not future.done():
                future.set_exception(PeerError(reason, status=Status.FLUSHED))
        self._opening.clear()

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
        """Close every peer in an orderly way, then the sockets, and give the memory back.

        It takes little more than `EndpointConfig.close_timeout_s`; what was posted and has not ended by then ends with
        FLUSHED. Cancelled, it parts from all peers at once. Who calls it again waits for the first call.
        """
        while self._closing:
            if self._closed:
                return
            await self._closed_now.wait()
        self._closing = True
        self._end_reason = self._end_reason or "the endpoint is closed"
        self._reject_incoming(self._end_reason)
        try:
            closing = (peer.close() for peer in list(self._peers.values()))
            results = await asyncio.gather(*closing, *self._closing_peers, return_exceptions=True)
        finally:
            self._shut()
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def _shut(self) -> None:
        """Let go of everything, whatever goes wrong with some of it."""
        with ExitStack() as stack:  # from the last to the first
            stack.callback(self._end_closing)
            stack.callback(self._close_region)
            stack.callback(self._queues.close)
            stack.callback(self._registry.close)
            stack.callback(self.completions.close)
            stack.callback(self._deliver_rest)
            stack.callback(self._driver.close)
            stack.callback(self.abandon, list(self._peers))

    def _close_region(self) -> None:
        with suppress(RegionError):  # the application still looks at a message: the memory goes with its last view
            self._region.close()

    def _end_closing(self) -> None:
        self._closed = True
        self._closed_now.notify()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
