"""A local endpoint on real sockets: connects to peers, accepts them, and owns the memory that messages land in."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Final, Self

from mypy_extensions import mypyc_attr

from devmem.region import Region
from devmem.registry import Access, Registration, Registry
from netns.base.addresses import host_port_text
from srd.batch import MessageBatch
from srd.compaction import Waiting
from srd.completion import CompletionQueue, WorkCompletion
from srd.config import EndpointConfig
from srd.engine import Engine
from srd.errors import NoRouteError, PacketError, PeerError, SrdError
from srd.first_answer import first_answer
from srd.inbox import PeerInbox
from srd.io.syscalls import Address
from srd.message import Message, WriteNotification
from srd.names import reachable, resolve
from srd.notify import Notify
from srd.opening import Opening
from srd.peer import Peer
from srd.proto.events import (
    BatchCompletion,
    Completion,
    Event,
    MessageReceived,
    MessagesReceived,
    PeerEnded,
    PeerOpened,
    WriteReceived,
)
from srd.proto.trace import Trace
from srd.proto.wire.status import Status
from srd.rx_queues import RxQueue
from srd.secure.config import Identity
from srd.stats import EndpointStats, with_peers

_ABSENT: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def _is_absent(error: SrdError) -> bool:
    """Whether an address could not be bound because this host does not have it, or its family."""
    cause = error.__cause__ or error.__context__  # compiled code sets the latter only
    return isinstance(cause, OSError) and cause.errno in _ABSENT


@mypyc_attr(native_class=False)  # an ordinary class even when compiled: for subclasses, weak references and mocks
class Endpoint:
    """A local endpoint: `async with Endpoint.listen(host, port) as endpoint`, or `await Endpoint.listen(host, port)`.

    An async context manager that closes it, and an iterator of the peers that others open.
    """

    def __init__(
        self,
        config: EndpointConfig,
        address: Address,
        *,
        family: socket.AddressFamily,
        accepting: bool,
        trace: Trace | None,
    ) -> None:
        self.config = config
        self._family = family
        self._registry = Registry()
        self._engine = Engine(
            config,
            address,
            family=family,
            accepting=accepting,
            memory=self._registry,
            on_event=self._on_event,
            on_failure=self._on_failure,
            trace=trace,
        )
        self.address: tuple[str, int] = self._engine.address
        self._end_reason: str | None = None  # set: no new peer, request or registration is accepted
        self._closing = self._closed = False
        self._closed_now = Notify()
        self._peers: dict[int, Peer] = {}
        self._inboxes: dict[int, PeerInbox] = {}  # of these peers
        self._engine.queues.compact(self._untouched)
        self._opening: dict[int, asyncio.Future[Peer]] = {}
        self._first_use: dict[int, str] = {}  # of these: host and port, where the key may be a new one
        self.completions = CompletionQueue()
        """Completions of the batches posted with `Peer.post_sends`, to all peers."""
        self._incoming: dict[int, Peer] = {}  # opened by the other end and not accepted yet, in order
        self._ended_peers = EndpointStats()  # the counters of those that have ended
        self._arrived = Notify()  # notified when `_incoming` changes or the endpoint ends
        self._rejects_incoming = False  # no more incoming peers
        self._closing_peers: set[asyncio.Task[None]] = set()  # tasks that close peers without a user

    @classmethod
    def listen(
        cls, host: str, port: int, *, config: EndpointConfig | None = None, trace: Trace | None = None
    ) -> Opening[Self]:
        """Open an endpoint that others may connect to. Raises SrdError when the address cannot be bound.

        Of a name with several addresses the first that this host has is bound. `port` 0: the kernel chooses one
        (`address`). `trace` receives the events of every peer, with times of `time.monotonic()`; the caller closes it.
        """
        return Opening(cls._listen(host, port, config=config or EndpointConfig(), trace=trace))

    @classmethod
    async def _listen(cls, host: str, port: int, *, config: EndpointConfig, trace: Trace | None) -> Self:
        addresses = await resolve(host, port=port, passive=True)
        for family, address in addresses[:-1]:
            try:
                return cls(config, address, family=family, accepting=True, trace=trace)
            except SrdError as error:
                if not _is_absent(error):
                    raise
        family, address = addresses[-1]
        return cls(config, address, family=family, accepting=True, trace=trace)

    @classmethod
    def open(cls, *, towards: str, config: EndpointConfig | None = None, trace: Trace | None = None) -> Opening[Self]:
        """Open an endpoint that only connects, to any address of host `towards`; `trace` as in `listen`.

        For several peers; a client of one has `srd.connect`.
        """
        return Opening(cls._open(towards, config=config or EndpointConfig(), trace=trace))

    @classmethod
    async def _open(cls, towards: str, *, config: EndpointConfig, trace: Trace | None) -> Self:
        families = {family for family, _ in await resolve(towards, port=0, passive=False)}
        if socket.AF_INET6 in families:
            try:
                return cls(config, ("::", 0), family=socket.AF_INET6, accepting=False, trace=trace)
            except SrdError as error:
                if socket.AF_INET not in families or not _is_absent(error):
                    raise
        return cls(config, ("0.0.0.0", 0), family=socket.AF_INET, accepting=False, trace=trace)  # noqa: S104

    # -- peers --------------------------------------------------------------------------------------------------

    def connect(self, host: str, port: int, *, fingerprint: str | None = None) -> Opening[Peer]:
        """Connect to a peer. Raises PeerError when it does not answer or refuses, SrdError for an unknown host.

        Of a name with several addresses all are tried, and the first that answers is taken (RFC 8305).

        `fingerprint`: of the public key that it must have; without one the known hosts decide, and a host that is not
        among them is trusted and added.

        A peer that the other end closes at once is returned nevertheless, as it may have sent messages before. When
        the call is cancelled, for example by a timeout, a peer that is opened meanwhile is closed.
        """
        return Opening(self._connect(host, port, fingerprint=fingerprint))

    async def _connect(self, host: str, port: int, *, fingerprint: str | None) -> Peer:
        self._check_open()
        addresses = reachable(await resolve(host, port=port, passive=False), family=self._family)
        if not addresses:
            raise NoRouteError(f"{host}: has no IPv4 address, and this endpoint has no other; open one for IPv6")
        try:
            return await first_answer(partial(self._open_peer, host=host, fingerprint=fingerprint), addresses)
        except PeerError as error:
            raise PeerError(f"{host_port_text(host, port)}: {error}", status=error.status) from None

    async def _open_peer(self, address: Address, *, host: str, fingerprint: str | None) -> Peer:
        self._check_open()
        name = host_port_text(host, address[1])
        check = self._engine.trust.credential_check(host, name=name, expected=fingerprint)
        number = self._engine.connect(address, family=self._family, name=host, check_credential=check)
        if fingerprint is None:
            self._first_use[number] = name
        future: asyncio.Future[Peer] = asyncio.get_running_loop().create_future()
        self._opening[number] = future
        try:
            return await future
        except asyncio.CancelledError:
            self._abandon(number)
            raise
        finally:
            self._first_use.pop(number, None)

    def _abandon(self, number: int) -> None:
        """Close a peer that is being opened, or has just been opened."""
        self._opening.pop(number, None)
        if (peer := self._peers.get(number)) is not None:
            self._close_peer_later(peer)
            return
        self._engine.close_peer(number)

    def _close_peer_later(self, peer: Peer) -> None:
        """Close a peer that has no user, and release what it has sent."""
        task = asyncio.ensure_future(peer.end())
        self._closing_peers.add(task)
        task.add_done_callback(self._closing_peers.discard)

    async def accept(self, *, authorize: Callable[[Identity], bool] | None = None) -> Peer:
        """Return the next peer that was opened by the other end. Raises SrdError once the endpoint is closed.

        A peer that has ended meanwhile is skipped, unless messages of it wait to be received. One that `authorize`
        returns False for is closed. To refuse in the handshake who may not open a peer, set `Keys.authorized`.
        """
        while True:
            self._check_open()
            while not self._incoming:
                if self._rejects_incoming:
                    raise SrdError(self._end_reason or "the endpoint accepts no more peers")
                await self._arrived.wait()
            number = next(iter(self._incoming))
            self._engine.core.accepted(number)
            peer = self._incoming.pop(number)
            try:
                if authorize is None or authorize(peer.identity):
                    return peer
            except BaseException:
                self._close_peer_later(peer)
                raise
            self._close_peer_later(peer)

    def stop_accepting(self) -> None:
        """Refuse new peers from now on; those that were accepted, or opened from here, stay.

        Peers that were not accepted yet are closed, and `accept` raises SrdError.
        """
        self._engine.core.stop_accepting()
        self._rejects_incoming = True
        for number, peer in self._incoming.items():
            self._engine.core.accepted(number)
            self._close_peer_later(peer)
        self._incoming.clear()
        self._arrived.notify()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Peer:
        """Return the next peer; stop once the endpoint is closed. Raises SrdError if it has failed."""
        try:
            return await self.accept()
        except SrdError:
            if self._closing:
                raise StopAsyncIteration from None
            raise

    def _check_open(self) -> None:
        if self._end_reason is not None:
            raise SrdError(self._end_reason)

    @property
    def identity(self) -> Identity:
        """What other ends see of this one."""
        return self._engine.trust.own_identity

    # -- registered memory --------------------------------------------------------------------------------------------

    def register(
        self, region: Region, *, offset: int, length: int, access: Access, peers: Iterable[Peer] | None = ()
    ) -> Registration:
        """Register `length` bytes of `region` from `offset`, for `peers` that know the remote key to read or write.

        `peers`: None for all of this endpoint, also later ones. Raises RegionError for a range out of bounds,
        RegistrationError for invalid rights, UsageError for a peer of another endpoint.
        """
        self._check_open()
        numbers = None if peers is None else frozenset(peer.number_at(self._engine) for peer in peers)
        return self._registry.register(region, offset=offset, length=length, access=access, peers=numbers)

    def deregister(self, registration: Registration) -> None:
        """Withdraw a registration at once: requests that use it end in error at both ends. The memory is free to use.

        Raises RegistrationError for a registration that is not (or no longer) of this endpoint.
        """
        self._registry.deregister(registration)
        self._engine.on_deregistered({registration.local_key, registration.remote_key}.__contains__)

    def renew_key(self, registration: Registration) -> None:
        """Give a registration another remote key: what peers write from now on with the one they know is refused.

        Answers to reads that were asked for with that one still come. Raises RegistrationError as `deregister` does.
        """
        self._registry.renew_key(registration)

    # -- device memory ----------------------------------------------------------------------------------------------

    def bind_rx(self, region: Region, *, chunk_bytes: int | None = None) -> RxQueue:
        """Bind a receive queue to `region`: packets steered to the queue land there, and nowhere else.

        `chunk_bytes`, by default the endpoint's, is the unit of memory that is reused as a whole. Raises UsageError if
        the region is too small, PoolError for a read-only region, SrdError if the kernel cannot.
        """
        self._check_open()
        return self._engine.queues.bind(region, chunk_bytes=chunk_bytes or self.config.chunk_bytes)

    def dontneed(self, token_ranges: Sequence[tuple[int, int]]) -> int:
        """Return fragments by ranges (first token, count), like SO_DEVMEM_DONTNEED; return how many were freed.

        At most 128 ranges (else PoolError) and 1,024 tokens per call; unknown tokens are skipped.
        """
        return self._engine.queues.tokens.dontneed(token_ranges)

    # -- events -------------------------------------------------------------------------------------------------

    def _untouched(self) -> Iterator[Waiting]:
        """Yield the messages of all peers of which the application has nothing yet."""
        return chain.from_iterable(inbox.untouched() for inbox in self._inboxes.values())

    def _on_event(self, event: Event) -> None:
        """Dispatch an event. Messages for a peer that is no longer known are released, other events ignored."""
        if isinstance(event, PeerOpened):
            self._on_opened(event)
            return
        if isinstance(event, PeerEnded):
            self._on_ended(event)
            return
        inbox = self._inboxes.get(event.peer)
        match event:
            case MessageReceived():
                message = Message(event, queues=self._engine.queues, release=self._engine.release)
                if inbox is None:
                    message.release()
                elif event.key:
                    self._on_stream_message(event, message)
                else:
                    inbox.deliver(message)
            case MessagesReceived():
                self._on_batch(event, inbox)
            case BatchCompletion() if inbox is not None:
                self.completions.push(WorkCompletion(self._peers[event.peer], event.request, event.count, Status.OK))
            case WriteReceived() if inbox is not None:
                inbox.deliver_write(WriteNotification(event.length, event.immediate))
            case Completion() if inbox is not None:
                if not inbox.complete(event.request, status=event.status):  # posted in a batch
                    self.completions.push(WorkCompletion(self._peers[event.peer], event.request, 1, event.status))

    def _on_batch(self, event: MessagesReceived, inbox: PeerInbox | None) -> None:
        batch = MessageBatch(event, queues=self._engine.queues, release=self._engine.release)
        if inbox is not None and not event.key:
            inbox.deliver(batch)
            return
        batch.abandon()
        if inbox is not None:
            self._engine.fail_peer(event.peer, reason="a batch of messages of a stream")

    def _on_stream_message(self, event: MessageReceived, message: Message) -> None:
        try:
            self._peers[event.peer].streams.on_message_untrusted(message, key=event.key)
        except PacketError as error:
            self._engine.fail_peer(event.peer, reason=str(error))

    def _on_opened(self, event: PeerOpened) -> None:
        inbox = self._inboxes[event.peer] = PeerInbox()
        peer = self._peers[event.peer] = Peer(
            self._engine,
            number=event.peer,
            address=event.address,
            core=self._engine.core.peer(event.peer),
            inbox=inbox,
            incoming=event.incoming,
        )
        if event.incoming and self._rejects_incoming:
            self._engine.core.accepted(event.peer)
            self._close_peer_later(peer)
            return
        if event.incoming:
            self._incoming[event.peer] = peer
            self._arrived.notify()
            return
        future = self._opening.pop(event.peer, None)
        if future is None or future.done():
            self._close_peer_later(peer)
            return
        try:
            self._remember(peer)
        except SrdError as error:
            self._close_peer_later(peer)
            future.set_exception(error)
        else:
            future.set_result(peer)

    def _remember(self, peer: Peer) -> None:
        """Note the key of a host that was connected to for the first time. Raises SrdError."""
        hosts, name = self._engine.trust.known_hosts, self._first_use.get(peer.number)
        if hosts is not None and name is not None:
            peer.is_first_contact = hosts.add(name, peer.identity.public_key)

    def _on_ended(self, event: PeerEnded) -> None:
        peer, inbox = self._peers.pop(event.peer, None), self._inboxes.pop(event.peer, None)
        try:
            if peer is not None:
                self._engine.queues.remove_peer(peer.context)
        finally:  # even after an exception, no task may go on waiting for that peer
            if inbox is not None:
                inbox.end()
                if peer is not None:
                    peer.on_ended()
                    self._count_ended(peer, event.status)
                if event.peer in self._incoming and not inbox.has_unreceived:
                    del self._incoming[event.peer]
                    self._engine.core.accepted(event.peer)  # frees its slot in the accept queue
            elif (future := self._opening.pop(event.peer, None)) and not future.done():
                future.set_exception(PeerError(event.reason, status=event.status))

    def _on_failure(self, reason: str) -> None:
        """Handle an internal error of the engine: fail all requests and peers, so that no task waits forever."""
        self._end_reason = reason
        for inbox in self._inboxes.values():
            inbox.fail_requests(Status.LOCAL_ERROR_QP_INTERNAL_ERROR)
            inbox.end()
        for peer in self._peers.values():
            peer.on_ended()
        self._peers.clear()
        self._inboxes.clear()
        self._reject_incoming(reason)
        self.completions.close()

    def _reject_incoming(self, reason: str) -> None:
        """Wake the tasks that wait for a peer to be opened, as none will be."""
        self._rejects_incoming = True
        self._incoming.clear()
        self._arrived.notify()
        for future in self._opening.values():
            if not future.done():
                future.set_exception(PeerError(reason, status=Status.FLUSHED))
        self._opening.clear()

    # -- lifecycle ----------------------------------------------------------------------------------------------

    @property
    def bytes_copied(self) -> int:
        """Payload bytes that were copied: on the slow receive path, into registered memory, by `gather` and `send`."""
        return self._engine.queues.bytes_copied

    @property
    def linear_bytes(self) -> int:
        """Payload bytes that landed in host memory, because no rule steered them to a bound region."""
        return self._engine.queues.host.landed_bytes

    @property
    def dropped_packets(self) -> int:
        """Datagrams that this host dropped because a socket buffer was full or the region had no free memory."""
        return self._engine.dropped_packets

    @property
    def peers(self) -> list[Peer]:
        """The peers that are open now, also those that nobody has accepted yet, in the order of their opening."""
        return list(self._peers.values())

    def stats(self) -> EndpointStats:
        """Return its counters as they are now."""
        return with_peers(self.ended_stats(), [peer.stats() for peer in self._peers.values()])

    def ended_stats(self) -> EndpointStats:
        """Return its counters without those of the peers that are open now."""
        return replace(
            self._ended_peers,
            rx_drops=self.dropped_packets,
            bytes_copied=self.bytes_copied,
            linear_bytes=self.linear_bytes,
            free_bytes=self._engine.queues.host.pool.free_bytes,
        )

    def _count_ended(self, peer: Peer, status: Status) -> None:
        unresponsive = self._ended_peers.unresponsive_remote_events + (status is Status.LOCAL_ERROR_UNRESP_REMOTE)
        sums = with_peers(self._ended_peers, [peer.stats()])
        self._ended_peers = replace(sums, peers=0, unresponsive_remote_events=unresponsive)

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._peers)} peers"
        return f"<Endpoint {host_port_text(*self.address)}, {self._end_reason or state}>"

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
        peers = list(self._peers.values())
        for peer in peers:
            peer.start_closing()  # a cancel may come before the tasks of `end` have begun
        try:
            closing = (peer.end() for peer in peers)
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
            stack.callback(self._registry.close)
            stack.callback(self.completions.close)
            stack.callback(self._engine.close)

    def _end_closing(self) -> None:
        self._closed = True
        self._closed_now.notify()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
