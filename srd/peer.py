"""A remote endpoint, as an application sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sized
from dataclasses import dataclass, replace
from typing import Any, Final, Self, SupportsIndex

from devmem.region import Region
from devmem.registry import Registration
from netns.base.addresses import host_port_text
from srd.batch import Integers, MessageBatch, equal_parts, integer
from srd.engine import Engine
from srd.errors import PeerError, RequestError, UsageError
from srd.handler import PeerHandler
from srd.inbox import PeerInbox, end_use
from srd.io.addresses import host_text
from srd.message import Message, WriteNotification
from srd.proto.base.security import SecurityMode
from srd.proto.endpoint.peer import PeerCore
from srd.proto.paths.path import Path, PathCounters, PathState
from srd.proto.wire.data import Address, Opcode
from srd.proto.wire.status import Status
from srd.proto.work_request import BatchRequest, WorkRequest
from srd.request import Request
from srd.secure.config import Identity
from srd.send_memory import Sendable, in_place, send_memory
from srd.stats import PeerStats, peer_stats
from srd.streams.halves import OutgoingFrame
from srd.streams.table import READER_LIMIT_BYTES, ReaderWriter, Streams
from srd.streams.wire import key as stream_key


def _immediate(immediate: SupportsIndex | None) -> int | None:
    return None if immediate is None else integer("immediate", immediate)


CLOSE_GRACE_S: Final = 0.25
"""Time for a CLOSE to be confirmed after requests were flushed: enough for several retransmissions."""


@dataclass(frozen=True, slots=True)
class PathStats:
    """One path to a peer: its state and its totals, in packets unless the name has another unit."""

    path: int
    """Its number."""
    state: PathState
    smoothed_rtt_s: float | None
    """None: nothing was measured yet."""
    inflight_bytes: int
    counters: PathCounters


def _stats(path: Path) -> PathStats:
    rtt_s = path.rtt.smoothed_s if path.rtt.sampled else None
    return PathStats(path.index, path.state, rtt_s, path.inflight_bytes, replace(path.counters))


class Peer:
    """A remote endpoint: send to it, receive from it, close it. Made by `connect` and `Endpoint.accept`.

    An async context manager that closes it, and an iterator of the messages that it sends.
    """

    __slots__ = (
        "_close_all",
        "_core",
        "_engine",
        "_inbox",
        "_key",
        "_next_request",
        "_streams",
        "address",
        "copied_bytes",
        "incoming",
        "is_first_contact",
        "number",
    )

    def __init__(
        self,
        engine: Engine,
        *,
        number: int,
        address: Address,
        core: PeerCore | None,
        inbox: PeerInbox,
        incoming: bool,
        key: int = 0,
    ) -> None:
        """`core`: None until `opened`, before which a peer can only be waited for: `attach`.

        `key`: of what `post` sends, for another end whose engine has `srd.proto.memory.Destinations`.
        """
        self.number = number
        self.address: tuple[str, int] = address if len(address) == 2 else (host_text(address), address[1])
        self._engine = engine
        if core is not None:
            self.opened(core)
        self._inbox = inbox
        self._key = key
        self._next_request = 0
        self._streams: Streams | None = None  # until they are used
        self.incoming = incoming
        """Whether the other end has opened it."""
        self.copied_bytes = 0
        """Bytes that `send` copied, since they did not lie in a region."""
        self._close_all: Callable[[], Coroutine[Any, Any, None]] | None = None
        self.is_first_contact = False
        """Whether its key was trusted because nothing was known of the host, and was added to the known hosts."""

    def opened(self, core: PeerCore) -> None:
        """Note that it is open."""
        self._core = core  # its counters can still be read after the peer has ended

    # -- messages -----------------------------------------------------------------------------------------------------

    # Numbers are declared as SupportsIndex: mypyc would raise TypeError for an argument that is declared as an int.

    async def send(self, data: Sendable, *, immediate: SupportsIndex | None = None) -> None:
        """Send a buffer as one message, with a 32-bit `immediate` if one is given; return once it was acknowledged.

        `data` is anything with contiguous bytes: bytes, bytearray, memoryview, a NumPy array. What lies in a `Region`
        is sent from there and must not change before the call returns; `bytes` are sent from where they are, too, and
        anything else is copied first. When cancelled
        it ends the request; whether the message arrives is then unknown.

        Raises RequestError, with the status, when it fails; PeerError when the peer has ended or is being closed;
        UsageError for what is no message.
        """
        memory = send_memory(data)
        try:
            self._check_length(memory.length)
            immediate = _immediate(immediate)
        except BaseException:
            memory.view.release()
            raise
        wr = WorkRequest(self._next_request, memory.length, memory.address, immediate=immediate)
        future = self._post(wr, view=memory.view)
        self.copied_bytes += memory.copied_bytes
        self._engine.queues.count_copy(memory.copied_bytes)
        status = await future
        if status is not Status.OK:
            raise RequestError(f"{host_port_text(*self.address)}: the message failed: {status.name}", status=status)

    # -- work requests, as in verbs: the result is the completion status. Cancelling the future ends the request; when
    #    an await of it returns, the memory is not read any more ---------------------------------------------------

    def post_send(
        self, region: Region, *, offset: SupportsIndex, length: SupportsIndex, immediate: SupportsIndex | None = None
    ) -> asyncio.Future[Status]:
        """Send `length` bytes of `region` from `offset` as one message, optionally with a 32-bit immediate.

        Until the request completes the memory must not change, and the region cannot be closed. With encryption this
        process reads it, so a file that is mapped must not become shorter (SIGBUS). Raises RegionError for
        a range out of bounds, UsageError for an invalid message, PeerError when the peer has ended or is being
        closed.
        """
        start, size = integer("offset", offset), integer("length", length)
        self._check_length(size)
        wr = WorkRequest(self._next_request, size, region.address + start, immediate=_immediate(immediate))
        return self._post(wr, view=region.view(start, length=size))

    def post_write(
        self,
        region: Region,
        *,
        offset: SupportsIndex,
        length: SupportsIndex,
        key: SupportsIndex,
        target_offset: SupportsIndex,
        immediate: SupportsIndex | None = None,
    ) -> asyncio.Future[Status]:
        """Write `length` bytes of `region` from `offset` to `target_offset` of the peer's registration `key`.

        At most 1 GiB. Only a write with an immediate notifies the peer's application (`recv_write`). A write that is
        refused (REMOTE_ERROR_BAD_ADDRESS) may have written a part of what lay within the bounds. Raises as `post_send`
        does, and UsageError for a key or an offset that is not a 64-bit number.
        """
        start, size = integer("offset", offset), integer("length", length)
        wr = WorkRequest(
            self._next_request,
            size,
            region.address + start,
            Opcode.WRITE,
            immediate=_immediate(immediate),
            key=integer("key", key),
            offset=integer("target_offset", target_offset),
        )
        return self._post(wr, view=region.view(start, length=size))

    def post_read(
        self,
        registration: Registration,
        *,
        offset: SupportsIndex,
        length: SupportsIndex,
        key: SupportsIndex,
        source_offset: SupportsIndex,
    ) -> asyncio.Future[Status]:
        """Read `length` bytes from `source_offset` of the peer's registration `key` to `offset` of a registration here.

        At most 1 GiB. `registration` must be this endpoint's and have LOCAL_WRITE over the range, or the status is
        LOCAL_ERROR_INVALID_LKEY. Raises PeerError when the peer has ended or is being closed, UsageError for a number
        over 64 bits.
        """
        wr = WorkRequest(
            self._next_request,
            integer("length", length),
            opcode=Opcode.READ,
            key=integer("key", key),
            offset=integer("source_offset", source_offset),
            local_key=registration.local_key,
            local_offset=integer("offset", offset),
        )
        return self._post(wr, view=None)  # the registration keeps its memory

    def post_sends(
        self, region: Region, offsets: Integers, *, lengths: int | Integers, immediate: SupportsIndex | None = None
    ) -> range:
        """Send many messages of one packet each: `lengths` bytes of `region` from each of `offsets`; return their ids.

        Consecutive messages of equal length are posted as one batch, which costs much less than single sends. Their
        completions are put into `Endpoint.completions`, in no order; neighbours with the same status share an entry.
        All messages carry the `immediate`, if one is given. Until they complete the memory must not change, and the
        region cannot be closed.

        Raises UsageError for an invalid batch, PeerError when the peer has ended or is being closed.
        """
        self._check_open()
        immediate = _immediate(immediate)
        first = self._next_request
        for addresses, length in equal_parts(region, offsets, lengths, most_bytes=self.batch_bytes):
            view = region.view(0, length=0)
            try:
                batch = BatchRequest(self._next_request, addresses, length, immediate, owner=view)
                self._engine.post_batch(self.number, batch)
            except BaseException:
                view.release()
                raise
            self._next_request += len(addresses)
        return range(first, self._next_request)

    @property
    def batch_bytes(self) -> int:
        """Longest message that `post_sends` accepts: the payload of one packet to this peer."""
        return self._core.sender.segment_bytes

    def _post(self, wr: WorkRequest, *, view: memoryview | None) -> asyncio.Future[Status]:
        """Post to the core, which checks the arguments, and keep `view` until the request completes."""
        try:
            self._check_open()
            future = Request(loop=asyncio.get_running_loop())
            self._engine.post(self.number, wr)
        except BaseException:
            if view is not None:
                view.release()  # or the error's traceback would keep it alive
            raise
        self._next_request += 1
        future.number, future.view, future.on_cancelled = wr.request, view, self._cancel
        self._inbox.begin(wr.request, future)
        return future

    def _check_length(self, length: int) -> None:
        if length > self._engine.config.protocol.max_message_bytes:
            raise UsageError(
                f"length: {length} bytes is more than a message may have "
                f"({self._engine.config.protocol.max_message_bytes}); send it in parts"
            )

    def _check_open(self) -> None:
        if self.ended or self._inbox.closing:  # which another task may have begun
            raise self.error()

    def _cancel(self, request: int) -> None:
        if (future := self._inbox.request(request)) is not None:
            self._engine.cancel(self.number, request=request)
            end_use(future)  # at once: the caller may close the region before the completion arrives

    # -- without futures, for owners with a callback for each message ------------------------------------------------

    def attach(self, handler: PeerHandler, *, on_write: Callable[[WriteNotification], None] | None = None) -> None:
        """Have `handler` take the messages, the completions of `post`, and the end; `recv` returns nothing any more.

        `on_write`: takes the writes with immediate that have landed here; None: `recv_write` returns them.
        """
        if on_write is not None:
            take = on_write

            def written(notification: WriteNotification) -> None:
                self._engine.release(self.number, (), 0, 1)
                take(notification)

            self._inbox.on_write = written
        self._inbox.attach(handler)

    def post(self, address: int, *, length: int, immediate: int | None = None) -> int:
        """Send memory of this process as one message; return the request's number, for the handler's `on_completion`.

        The owner keeps the memory, unchanged, until then. Raises UsageError for what is no message, PeerError when the
        peer has ended or is being closed.
        """
        self._check_open()
        request = self._next_request
        self._engine.post(self.number, WorkRequest(request, length, address, immediate=immediate, key=self._key))
        self._next_request = request + 1
        return request

    def write(self, address: int, *, length: int, key: int, target_offset: int, immediate: int | None = None) -> int:
        """Write memory of this process to the peer's registration, as `post_write` does; otherwise as `post`."""
        self._check_open()
        request = self._next_request
        wr = WorkRequest(request, length, address, Opcode.WRITE, immediate=immediate, key=key, offset=target_offset)
        self._engine.post(self.number, wr)
        self._next_request = request + 1
        return request

    def cancel(self, request: int) -> None:
        """End a request of `post` or `write` with FLUSHED. What is missing at the other end is not sent any more."""
        self._engine.cancel(self.number, request=request)

    def fail(self, reason: str) -> None:
        """End the peer at once, as it has sent what no conforming one does, or answers no more."""
        self._engine.fail_peer(self.number, reason=reason)

    def after_delivery(self, callback: Callable[[], bool]) -> None:
        """Call back once when the handlers have taken all that arrived in this turn of the event loop, of all peers.

        It returns whether it has posted a reply, which goes out at once, and before the acknowledgements.
        """
        self._engine.driver.after_delivery(callback)

    def send_now(self) -> None:
        """Send what was posted, to all peers, instead of in the loop's next iteration. Not from within a handler."""
        self._engine.driver.flush()

    @property
    def window_bytes(self) -> float:
        """Congestion window: how much may be in flight now; 0 after the peer has ended."""
        return self._core.sender.controller.window_bytes

    @property
    def inflight_bytes(self) -> int:
        """Bytes that were sent and are neither acknowledged nor lost, with headers."""
        return self._core.sender.inflight_bytes

    @property
    def unsent_bytes(self) -> int:
        """Bytes that were posted and not sent yet, and that the receiver's credit allows."""
        return self._core.sender.unsent_bytes

    @property
    def smoothed_rtt_s(self) -> float:
        """Smoothed round trip over the paths in use."""
        return self._core.sender.rtt_s

    # -- messages that have arrived ---------------------------------------------------------------------------------

    async def recv(self) -> Message:
        """Return the next message, in the order of completion. Raises PeerError when the peer has ended."""
        await self._wait_for(self._inbox.messages)
        head = self._inbox.messages[0]
        if isinstance(head, MessageBatch):
            message, left = head.take()
        else:
            message, left = head, False
        if not left:
            self._inbox.messages.popleft()
        message.received = True
        return message

    async def recv_batch(self) -> Message | MessageBatch:
        """Return what arrived next: messages of one length that arrived together, or a single message.

        For many small messages this is much faster than `recv`. Raises PeerError when the peer has ended.
        """
        await self._wait_for(self._inbox.messages)
        head = self._inbox.messages[0]
        if isinstance(head, MessageBatch) and head.taken:  # `recv` has begun it: return the rest singly, too
            return await self.recv()
        arrived = self._inbox.messages.popleft()
        arrived.received = True
        return arrived

    async def recv_write(self) -> WriteNotification:
        """Return the next write with immediate that has landed here. Raises PeerError when the peer has ended.

        Notifications that are not received count against the messages that the peer may have outstanding.
        """
        await self._wait_for(self._inbox.writes)
        written = self._inbox.writes.popleft()
        self._engine.release(self.number, (), 0, 1)
        return written

    # -- streams ------------------------------------------------------------------------------------------------------

    async def open_stream(self, *, limit: int = READER_LIMIT_BYTES) -> ReaderWriter:
        """Open an ordered byte stream, as `asyncio.open_connection` does a connection; return (reader, writer).

        The other end takes it with `accept_stream`. A lost packet of one stream delays no other, nor any message.
        `limit` is the reader's. Close the writer when the stream is no longer needed; `wait_closed` returns when all of
        it has arrived. Raises PeerError when the peer has ended, and waits while 16 streams were not accepted yet.
        """
        self._check_open()
        return await self.streams.open(limit=limit)

    async def accept_stream(self, *, limit: int = READER_LIMIT_BYTES) -> ReaderWriter:
        """Return (reader, writer) of the next stream that the other end has opened; see `open_stream`.

        Raises PeerError when the peer has ended and no stream is left.
        """
        return await self.streams.accept(limit=limit)

    @property
    def streams(self) -> Streams:
        """Its streams. For the endpoint."""
        if self._streams is None:
            config, sender = self._engine.config, self._core.sender
            self._streams = Streams(
                is_acceptor=self.incoming,
                window_bytes=config.stream_window_bytes,
                piece_bytes=sender.max_message_bytes,
                post=self._post_of_stream,
                extra={"peername": self.address, "sockname": self._engine.address, "peer": self},
            )
            if self.ended:
                self._streams.on_peer_ended(self.error())
        return self._streams

    def _post_of_stream(self, number: int, message: OutgoingFrame) -> asyncio.Future[Status] | None:
        if self.ended or self._inbox.closing:
            return None
        memory = in_place(message.payload)
        wr = WorkRequest(
            self._next_request,
            memory.length,
            memory.address,
            immediate=message.offset,
            key=stream_key(message.kind, stream=number),
        )
        return self._post(wr, view=memory.view)

    def on_ended(self) -> None:
        """End its streams. For the endpoint."""
        if self._streams is not None:
            self._streams.on_peer_ended(self.error())
            if self._inbox.closing:
                self._streams.forget_pending()

    # -- receiving ----------------------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """Return the next message; stop once the peer was closed by either end. Raises PeerError if it has failed."""
        try:
            return await self.recv()
        except PeerError as error:
            if self._inbox.closing or error.status is Status.OK:
                raise StopAsyncIteration from None
            raise

    async def _wait_for(self, queue: Sized) -> None:
        while not queue:
            if self.ended:
                raise self.error()
            await self._inbox.changed.wait()

    async def close(self) -> None:
        """Complete what was posted, then close in an orderly way, within `EndpointConfig.close_timeout_s`.

        Requests still open by then end with FLUSHED; so do all open requests at once when this is cancelled. Messages
        that were not received are released. A peer of `srd.connect` closes its endpoint, too.
        """
        await (self.end() if self._close_all is None else self._close_all())

    def abort(self) -> None:
        """Close at once: open requests end with FLUSHED, and the other end is told, but not waited for.

        Messages that were not received are released. Not from within a handler. No effect on a peer that has ended.
        """
        if not self._inbox.ended:
            self._inbox.closing = True
            self._engine.abandon([self.number])
            self._release_unreceived()

    def close_with(self, close_all: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Have `close` call this instead: it closes the peer's endpoint, and so the peer. For `srd.connect`."""
        self._close_all = close_all

    async def end(self) -> None:
        """Close the peer as `close` does, and leave its endpoint open. For the endpoint."""
        self.start_closing()
        try:
            if not await self._ended_within(self._engine.config.close_timeout_s):
                self._engine.flush_peer(self.number)
                await self._ended_within(CLOSE_GRACE_S)
        finally:
            if not self._inbox.ended:
                self._engine.abandon([self.number])
            self._release_unreceived()

    def start_closing(self) -> None:
        """Begin what `end` waits for; what is not received by then will be released. For the endpoint."""
        if self._streams is not None and not self._inbox.closing:
            self._streams.flush()
        self._inbox.closing = True
        self._engine.close_peer(self.number)

    def _release_unreceived(self) -> None:
        self._inbox.release_messages()
        if self._streams is not None:
            self._streams.forget_pending()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _ended_within(self, timeout_s: float) -> bool:
        late = False

        def expire() -> None:
            nonlocal late
            late = True
            self._inbox.changed.notify()

        timer = asyncio.get_running_loop().call_later(timeout_s, expire)
        try:
            while not (self._inbox.ended or late):
                await self._inbox.changed.wait()
        finally:
            timer.cancel()
        return self._inbox.ended

    @property
    def identity(self) -> Identity:
        """Who the peer is, as far as the handshake has shown."""
        return self._engine.trust.identity(self._core.credential)

    @property
    def can_send_mapped(self) -> bool:
        """Whether a region to send may be a mapped file that could become shorter: this process must not read it."""
        return self.identity.mode is SecurityMode.PLAIN

    def number_at(self, engine: Engine) -> int:
        """Return the peer's number, for its endpoint's own use. Raises UsageError for a peer of another endpoint."""
        if self._engine is not engine:
            raise UsageError(f"the peer at {host_port_text(*self.address)} belongs to another endpoint")
        return self.number

    @property
    def context(self) -> int:
        """The id that this end chose for the peer; every packet from the peer carries it."""
        return self._core.own_context

    @property
    def ended(self) -> bool:
        """Whether the peer has ended."""
        return self._core.ended is not None

    async def wait_ended(self) -> Status:
        """Wait until the peer has ended; return its status."""
        while not self._inbox.ended:
            await self._inbox.changed.wait()
        status, _ = self._core.ended or (Status.OK, "")
        return status

    def error(self) -> PeerError:
        """Return the error with the status and the reason of the peer's end; FLUSHED while it is being closed."""
        unended = (Status.FLUSHED, "being closed") if self._inbox.closing else (Status.OK, "it is open")
        status, reason = self._core.ended or unended
        return PeerError(f"{host_port_text(*self.address)}: {reason}", status=status)

    # -- counters -----------------------------------------------------------------------------------------------------

    @property
    def paths(self) -> list[PathStats]:
        """The paths to the peer, by number, as they are now."""
        return [_stats(path) for path in self._core.sender.paths]

    def stats(self) -> PeerStats:
        """Return its counters as they are now; also after it has ended."""
        streams = self._streams.count if self._streams is not None else 0
        return peer_stats(self._core, copied_bytes=self.copied_bytes, streams=streams)

    def __repr__(self) -> str:
        status, reason = self._core.ended or (None, "")
        state = "open" if status is None else f"ended: {status.name}, {reason}"
        return f"<Peer {host_port_text(*self.address)}, {state}>"

    @property
    def landed_bytes(self) -> int:
        """Payload that has landed, of complete and incomplete messages."""
        return self._core.receiver.landed_bytes
