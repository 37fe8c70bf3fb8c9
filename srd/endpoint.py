"""A local endpoint on real sockets: connects to peers, accepts them, and owns the memory that messages land in."""

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
"""Tried when packets of the route's own MTU are not answered: Ethernet's MTU, and the minimum MTU of IPv6."""

CLOSES_PER_TURN = 100
"""CLOSE packets that one turn of the driver is certain to send."""


async def resolve(host: str, *, port: int, passive: bool) -> tuple[socket.AddressFamily, Address]:
    """Return family and address of `host`, which may be link-local (fe80::1%eth0). Raises SrdError naming it."""
    try:
        name, scope = split_zone(host)  # uvloop drops the zone
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


@mypyc_attr(native_class=False)  # an ordinary class even when compiled: for subclasses, weak references and mocks
class Endpoint:
    """A local endpoint: `await Endpoint.listen(...)` or `await Endpoint.open(...)`; an async context manager."""

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
        # First what may reject the configuration, then what has to be released.
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
        self._end_reason: str | None = None  # set: no new peer, request or registration is accepted
        self._closing = self._closed = False
        self._closed_now = Notify()
        self._peers: dict[int, Peer] = {}
        self._opening: dict[int, asyncio.Future[Peer]] = {}
        self.completions = CompletionQueue()
        """Completions of the batches posted with `Peer.post_send`, to all peers."""
        self._incoming: dict[int, Peer] = {}  # opened by the other end and not accepted yet, in order
        self._arrived = Notify()  # notified when `_incoming` changes or the endpoint ends
        self._rejects_incoming = False  # no more incoming peers
        self._closing_peers: set[asyncio.Task[None]] = set()  # tasks that close peers without a user

    @classmethod
    async def listen(
        cls, host: str, *, port: int, config: EndpointConfig | None = None, trace: Trace | None = None
    ) -> Self:
        """Open an endpoint that others may connect to. Raises SrdError when the address cannot be bound.

        `trace` receives the events of every peer, with times of `time.monotonic()`; the caller closes it.
        """
        family, address = await resolve(host, port=port, passive=True)
        return cls._open(config or EndpointConfig(), address, family=family, accepting=True, trace=trace)

    @classmethod
    async def open(cls, *, towards: str, config: EndpointConfig | None = None, trace: Trace | None = None) -> Self:
        """Open an endpoint that only connects, with the address family of host `towards`; `trace` as in `listen`."""
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
            # The other paths have the same address, and an ephemeral source port each.
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
        """Connect to a peer. Raises PeerError when it does not answer or refuses, SrdError for an unknown host.

        A peer that the other end closes at once is returned nevertheless, as it may have sent messages before. When
        the call is cancelled, for example by a timeout, a peer that is opened meanwhile is closed.
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
        """Close a peer that is being opened, or has just been opened."""
        self._opening.pop(number, None)
        if (peer := self._peers.get(number)) is not None:
            self._close_peer_later(peer)
            return
        with suppress(UsageError):  # the peer has ended
            self._core.close(number, now=time.monotonic())
            self._driver.wake()

    def _close_peer_later(self, peer: Peer) -> None:
        """Close a peer that has no user, and release what it has sent."""
        task = asyncio.ensure_future(peer.close())
        self._closing_peers.add(task)
        task.add_done_callback(self._closing_peers.discard)

    async def accept(self) -> Peer:
        """Return the next peer that was opened by the other end. Raises SrdError once the endpoint is closed.

        A peer that has ended meanwhile is skipped, unless messages of it wait to be received.
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
        """Queue a work request with the arguments of `EndpointCore.post` and addresses of this process. For `Peer`."""
        self._core.post(peer, request=request, **work_request)
        self._driver.wake()

    def post_batch(self, peer: int, **work_requests: Any) -> None:
        """Queue sends with the arguments of `EndpointCore.post_batch`. For `Peer`."""
        self._core.post_batch(peer, **work_requests)
        self._driver.wake()

    def cancel(self, peer: int, *, request: int) -> None:
        """End a request with FLUSHED; its memory is not read any more. For `Peer`."""
        self._core.cancel(peer, request=request, now=time.monotonic())
        self._driver.drop_unsent()
        self._driver.wake()

    def close_peer(self, peer: int) -> None:
        """Begin to close a peer. For `Peer`."""
        with suppress(UsageError):  # the peer has ended
            self._core.close(peer, now=time.monotonic())
            self._driver.wake()

    def flush_peer(self, peer: int) -> None:
        """End a peer's open requests with FLUSHED. For `Peer`."""
        self._core.flush(peer, now=time.monotonic())
        self._driver.wake()

    def abandon(self, peers: Sequence[int]) -> None:
        """Close peers at once, without waiting for the other end to confirm; open requests end with FLUSHED."""
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
        """Register `length` bytes of `region` from `offset`, for peers that know the remote key to read or write.

        Raises RegionError for a range out of bounds, RegistrationError for invalid rights.
        """
        self._check_open()
        return self._registry.register(region, offset=offset, length=length, access=access)

    def deregister(self, registration: Registration) -> None:
        """Withdraw a registration at once: requests that use it end in error at both ends. The memory is free to use.

        Raises RegistrationError for a registration that is not (or no longer) of this endpoint.
        """
        self._registry.deregister(registration)
        for key in (registration.local_key, registration.remote_key):
            self._core.on_deregistered(key, now=time.monotonic())
        self._driver.drop_unsent()
        self._driver.wake()

    # -- device memory ----------------------------------------------------------------------------------------------

    def bind_rx(self, region: Region, *, chunk_bytes: int | None = None) -> RxQueue:
        """Bind a receive queue to `region`: packets steered to the queue land there, and nowhere else.

        `chunk_bytes`, by default the endpoint's, is the unit of memory that is reused as a whole. Raises UsageError if
        header split is off or the region is too small, PoolError for a read-only region, SrdError if the kernel cannot.
        """
        self._check_open()
        return self._queues.bind(region, chunk_bytes=chunk_bytes or self.config.chunk_bytes)

    def dontneed(self, token_ranges: Sequence[tuple[int, int]]) -> int:
        """Return fragments by ranges (first token, count), like SO_DEVMEM_DONTNEED; return how many were freed.

        At most 128 ranges (else PoolError) and 1,024 tokens per call; unknown tokens are skipped.
        """
        return self._queues.tokens.dontneed(token_ranges)

    def return_token(self, token: int) -> None:
        """Return one fragment. Raises PoolError if it was returned before, or belongs to another endpoint."""
        self._queues.tokens.give_back(token)

    def refill_ring(self, *, entries: int = 4096) -> RefillRing:
        """Create a ring that returns fragments without a call, from any thread, or (by `ring.region`) another process.

        The endpoint reads it before each batch that it receives.
        """
        self._check_open()
        return self._queues.refill_ring(entries)

    # -- events -------------------------------------------------------------------------------------------------

    def _take_event(self, event: Event) -> None:
        """Handle an event. An exception fails only the peer of the event."""
        try:
            self._on_event(event)
        except Exception as error:  # noqa: BLE001 - reported to the loop's exception handler
            self._fail_peer(event, error)

    def _fail_peer(self, event: Event, error: Exception) -> None:
        status, reason = Status.LOCAL_ERROR_QP_INTERNAL_ERROR, f"internal error: {error!r}"
        asyncio.get_running_loop().call_exception_handler({"message": f"{event}: {reason}", "exception": error})
        self._core.abandon(event.peer, status=status, reason=reason, now=time.monotonic())

    def _on_event(self, event: Event) -> None:
        """Dispatch an event. Messages for a peer that is no longer known are released, other events ignored."""
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
                if not peer.complete(event.request, status=event.status):  # posted in a batch
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
        finally:  # even after an exception, no task may go on waiting for that peer
            if peer is not None:
                peer.end()
                if event.peer in self._incoming and not peer.has_unreceived:
                    del self._incoming[event.peer]
                    self._core.accepted(event.peer)  # frees its slot in the accept queue
            elif (future := self._opening.pop(event.peer, None)) and not future.done():
                future.set_exception(PeerError(event.reason, status=event.status))

    def _on_failure(self, error: Exception) -> None:
        """Handle an internal error of the driver: fail all requests and peers, so that no task waits forever."""
        status, reason = Status.LOCAL_ERROR_QP_INTERNAL_ERROR, f"internal error: {error!r}"
        self._end_reason = reason
        with suppress(Exception):  # the core itself may be broken
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
        """Handle the core's remaining events after the driver has stopped."""
        while (event := self._core.poll_event()) is not None:
            self._take_event(event)

    def _reject_incoming(self, reason: str) -> None:
        """Wake the tasks that wait for a peer to be opened, as none will be."""
        self._rejects_incoming = True
        self._incoming.clear()
        self._arrived.notify()
        for future in self._opening.values():
            if not future.done():
                future.set_exception(PeerError(reason, status=Status.FLUSHED))
        self._opening.clear()

    def release_write(self, peer: int) -> None:
        """Return the credit of a write whose notification the application has received. For `Peer`."""
        self._release(peer, (), 0, 1)

    def _release(self, peer: int, frags: Sequence[Frag], size_bytes: int, messages: int) -> None:
        """Take fragments back from the application: free the memory, return the credit of these bytes and messages."""
        self._queues.drop(frags)
        self._core.release(peer, size_bytes=size_bytes, messages=messages, now=time.monotonic())
        self._driver.wake()

    # -- life ---------------------------------------------------------------------------------------------------

    @property
    def bytes_copied(self) -> int:
        """Payload bytes that were copied: on the slow receive path, into registered memory, and by `Message.gather`."""
        return self._queues.bytes_copied

    @property
    def linear_bytes(self) -> int:
        """Payload bytes that landed in host memory, because no rule steered them to a bound region."""
        return self._queues.host.landed_bytes

    @property
    def dropped_packets(self) -> int:
        """Datagrams that this host dropped because a socket buffer was full or the region had no free memory."""
        return self._driver.dropped_packets() + self._queues.refused_packets

    async def close(self) -> None:
        """Close every peer in an orderly way, then the sockets, and release the memory.

        It takes little more than `EndpointConfig.close_timeout_s`; requests still open by then end with FLUSHED. When
        cancelled, it closes all peers at once. Further calls wait for the first one.
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
        """Release everything, even if some steps raise."""
        with ExitStack() as stack:  # runs from the last callback to the first
            stack.callback(self._end_closing)
            stack.callback(self._close_region)
            stack.callback(self._queues.close)
            stack.callback(self._registry.close)
            stack.callback(self.completions.close)
            stack.callback(self._deliver_rest)
            stack.callback(self._driver.close)
            stack.callback(self.abandon, list(self._peers))

    def _close_region(self) -> None:
        with suppress(RegionError):  # the application still has a view of a message: the last view frees the memory
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
