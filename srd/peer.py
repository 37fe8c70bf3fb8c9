"""A remote endpoint, as an application sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Sized
from typing import TYPE_CHECKING, Any, SupportsIndex

from devmem.region import Region
from devmem.registry import Registration
from srd.batch import Integers, MessageBatch, equal_parts, integer
from srd.errors import PeerError, UsageError
from srd.io.addresses import host_port_text, host_text
from srd.message import Message, WriteNotification
from srd.notify import Notify
from srd.proto.lazy_deque import LazyDeque
from srd.proto.paths.path import Path
from srd.proto.peer import PeerCore
from srd.proto.wire.data import Opcode
from srd.proto.wire.status import Status

if TYPE_CHECKING:
    from srd.endpoint import Endpoint


def _immediate(immediate: SupportsIndex | None) -> int | None:
    return None if immediate is None else integer("immediate", immediate)


CLOSE_GRACE_S = 0.25
"""Time for a CLOSE to be confirmed after requests were flushed: enough for several retransmissions."""


class Peer:
    """A remote endpoint: send to it, receive from it, close it. Made by `Endpoint.connect` and `Endpoint.accept`."""

    __slots__ = (
        "_changed", "_closing", "_core", "_endpoint", "_gone", "_messages", "_next_request", "_requests", "_views",
        "_writes", "address", "number",
    )  # fmt: skip

    def __init__(self, endpoint: Endpoint, core: PeerCore) -> None:
        self.number = core.number
        self.address: tuple[str, int] = (host_text(core.address), core.address[1])
        self._endpoint = endpoint
        self._core = core  # its counters can still be read after the peer has ended
        self._requests: dict[int, asyncio.Future[Status]] = {}
        self._views: dict[int, memoryview] = {}  # of open requests: a view keeps its region from being closed
        self._next_request = 0
        self._messages = LazyDeque[Message | MessageBatch]()
        self._writes = LazyDeque[WriteNotification]()
        self._changed = Notify()
        self._closing = False
        self._gone = False  # whether `end` was called, after all other events

    # -- work requests: the result is the completion status. Cancelling the future ends the request; when an await of it
    #    returns, the memory is not read any more ----------------------------------------------------------------------

    # Numbers are declared as SupportsIndex: mypyc would raise TypeError for an argument that is declared as an int.

    def send(
        self, region: Region, *, offset: SupportsIndex, length: SupportsIndex, immediate: SupportsIndex | None = None
    ) -> asyncio.Future[Status]:
        """Send `length` bytes of `region` from `offset` as one message, optionally with a 32-bit immediate.

        Until the request completes the memory must not change, and the region cannot be closed. Raises RegionError for
        a range out of bounds, UsageError for an invalid message, PeerError when the peer has ended.
        """
        start, size = integer("offset", offset), integer("length", length)
        if size > self._endpoint.config.protocol.max_message_bytes:
            raise UsageError(
                f"length: {size} bytes is more than a message may have "
                f"({self._endpoint.config.protocol.max_message_bytes}); send it in parts"
            )
        view = region.view(start, length=size)
        return self._post(view, payload_offset=region.address + start, length=size, immediate=_immediate(immediate))

    def write(
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
        refused (REMOTE_ERROR_BAD_ADDRESS) may have written a part of what lay within the bounds. Raises as `send` does,
        and UsageError for a key or an offset that is not a 64-bit number.
        """
        start, size = integer("offset", offset), integer("length", length)
        return self._post(
            region.view(start, length=size),
            opcode=Opcode.WRITE,
            payload_offset=region.address + start,
            length=size,
            key=integer("key", key),
            offset=integer("target_offset", target_offset),
            immediate=_immediate(immediate),
        )

    def read(
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
        LOCAL_ERROR_INVALID_LKEY. Raises PeerError when the peer has ended, UsageError for a number over 64 bits.
        """
        return self._post(
            None,  # the registration keeps its memory
            opcode=Opcode.READ,
            length=integer("length", length),
            key=integer("key", key),
            offset=integer("source_offset", source_offset),
            local_key=registration.local_key,
            local_offset=integer("offset", offset),
        )

    def post_send(
        self, region: Region, offsets: Integers, *, lengths: int | Integers, immediate: SupportsIndex | None = None
    ) -> range:
        """Send many messages of one packet each: `lengths` bytes of `region` from each of `offsets`; return their ids.

        Consecutive messages of equal length are posted as one batch, which costs much less than single sends. Their
        completions are put into `Endpoint.completions`, in no order; neighbours with the same status share an entry.
        All messages carry the `immediate`, if one is given. Until they complete the memory must not change, and the
        region cannot be closed.

        Raises UsageError for an invalid batch, PeerError when the peer has ended.
        """
        self._check_open()
        immediate = _immediate(immediate)
        first = self._next_request
        for addresses, length in equal_parts(region, offsets, lengths, most_bytes=self.batch_bytes):
            view = region.view(0, length=0)
            try:
                self._endpoint.post_batch(
                    self.number,
                    first_request=self._next_request,
                    payload_addresses=addresses,
                    length=length,
                    immediate=immediate,
                    owner=view,
                )
            except BaseException:
                view.release()
                raise
            self._next_request += len(addresses)
        return range(first, self._next_request)

    @property
    def batch_bytes(self) -> int:
        """Longest message that `post_send` accepts: the payload of one packet to this peer."""
        return self._core.sender.segment_bytes if self._core.sender else 0

    def _post(self, view: memoryview | None, **work_request: Any) -> asyncio.Future[Status]:
        """Post to the core, which checks the arguments, and keep `view` until the request completes."""
        try:
            self._check_open()
            future: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
            request = self._next_request
            self._endpoint.post(self.number, request=request, **work_request)
        except BaseException:
            if view is not None:
                view.release()  # or the error's traceback would keep it alive
            raise
        self._next_request += 1
        self._requests[request] = future
        if view is not None:
            self._views[request] = view
        future.add_done_callback(lambda done: self._cancel(request) if done.cancelled() else None)
        return future

    def _check_open(self) -> None:
        if self.ended:
            raise self.error()

    def _cancel(self, request: int) -> None:
        if request in self._requests:
            self._endpoint.cancel(self.number, request=request)
            self._release_view(request)  # at once: the caller may close the region before the completion arrives

    def _release_view(self, request: int) -> None:
        """Release the view of a request whose memory is not read any more."""
        if (view := self._views.pop(request, None)) is not None:
            view.release()

    async def recv(self) -> Message:
        """Return the next message, in the order of completion. Raises PeerError when the peer has ended."""
        await self._wait_for(self._messages)
        head = self._messages[0]
        if isinstance(head, MessageBatch):
            message, left = head.take()
            if left:
                return message
        else:
            message = head
        self._messages.popleft()
        return message

    async def recv_batch(self) -> Message | MessageBatch:
        """Return what arrived next: messages of one length that arrived together, or a single message.

        For many small messages this is much faster than `recv`. Raises PeerError when the peer has ended.
        """
        await self._wait_for(self._messages)
        head = self._messages[0]
        if isinstance(head, MessageBatch) and head.taken:  # `recv` has begun it: return the rest singly, too
            return await self.recv()
        return self._messages.popleft()

    async def recv_write(self) -> WriteNotification:
        """Return the next write with immediate that has landed here. Raises PeerError when the peer has ended.

        Notifications that are not received count against the messages that the peer may have outstanding.
        """
        await self._wait_for(self._writes)
        written = self._writes.popleft()
        self._endpoint.release_write(self.number)
        return written

    async def _wait_for(self, queue: Sized) -> None:
        while not queue:
            if self.ended:
                raise self.error()
            await self._changed.wait()

    async def close(self) -> None:
        """Complete what was posted, then close in an orderly way, within `EndpointConfig.close_timeout_s`.

        Requests still open by then end with FLUSHED; so do all open requests at once when this is cancelled. Messages
        that were not received are released.
        """
        self._closing = True
        self._endpoint.close_peer(self.number)
        try:
            if not await self._gone_within(self._endpoint.config.close_timeout_s):
                self._endpoint.flush_peer(self.number)
                await self._gone_within(CLOSE_GRACE_S)
        finally:
            if not self._gone:
                self._endpoint.abandon([self.number])
        self._release_all()

    async def _gone_within(self, timeout_s: float) -> bool:
        late = False

        def expire() -> None:
            nonlocal late
            late = True
            self._changed.notify()

        timer = asyncio.get_running_loop().call_later(timeout_s, expire)
        try:
            while not (self._gone or late):
                await self._changed.wait()
        finally:
            timer.cancel()
        return self._gone

    def _release_all(self) -> None:
        while self._messages:
            left = self._messages.popleft()
            if isinstance(left, MessageBatch):
                left.abandon()
            else:
                left.release()

    @property
    def context(self) -> int:
        """The id that this end chose for the peer; every packet from the peer carries it."""
        return self._core.own_context

    @property
    def has_unreceived(self) -> bool:
        """Whether messages or writes wait to be received."""
        return bool(self._messages) or bool(self._writes)

    @property
    def ended(self) -> bool:
        """Whether the peer has ended."""
        return self._core.ended is not None

    async def wait_ended(self) -> Status:
        """Wait until the peer has ended; return its status."""
        while not self._gone:
            await self._changed.wait()
        status, _ = self._core.ended or (Status.OK, "")
        return status

    def error(self) -> PeerError:
        """Return the error that says how the peer ended."""
        status, reason = self._core.ended or (Status.OK, "it is open")
        return PeerError(f"{host_port_text(*self.address)}: {reason}", status=status)

    # -- counters -----------------------------------------------------------------------------------------------

    @property
    def paths(self) -> list[Path]:
        """The paths to the peer, with their counters."""
        return self._core.sender.paths if self._core.sender else []

    @property
    def packets_sent(self) -> int:
        """Data packets sent, including retransmissions."""
        return self._core.sender.packets if self._core.sender else 0

    @property
    def packets_retransmitted(self) -> int:
        """Data packets that were retransmissions."""
        return self._core.sender.retransmitted if self._core.sender else 0

    @property
    def packets_received(self) -> int:
        """Data packets received from the peer, including duplicates."""
        return self._core.receiver.packets

    @property
    def duplicates_received(self) -> int:
        """Data packets that had been received before."""
        return self._core.receiver.duplicates

    @property
    def landed_bytes(self) -> int:
        """Payload that has landed, of complete and incomplete messages."""
        return self._core.receiver.landed_bytes

    @property
    def longest_gap_s(self) -> float:
        """Longest time between two landings since `start_gap`."""
        return self._core.receiver.longest_gap_s

    def start_gap(self) -> None:
        """Restart the measurement of the longest gap."""
        self._core.receiver.start_gap()

    # -- called by the endpoint ---------------------------------------------------------------------------------

    def deliver(self, message: Message | MessageBatch) -> None:
        """Queue a message, or several that arrived together, for `recv`."""
        self._messages.append(message)
        self._changed.notify()

    def deliver_write(self, written: WriteNotification) -> None:
        """Queue a write notification for `recv_write`."""
        self._writes.append(written)
        self._changed.notify()

    def complete(self, request: int, *, status: Status) -> bool:
        """Set the result of a request that has a future; return whether it has one."""
        self._release_view(request)
        future = self._requests.pop(request, None)
        if future is not None and not future.done():
            future.set_result(status)
        return future is not None

    def fail_requests(self, status: Status) -> None:
        """End every open request with `status`."""
        for request in list(self._requests):
            self.complete(request, status=status)

    def end(self) -> None:
        """Mark the peer as ended; the core has the status and the reason."""
        self._gone = True
        if self._closing:
            self._release_all()
        self._changed.notify()
