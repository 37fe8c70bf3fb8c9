"""A queue pair for asyncio: requests as futures, messages in buffers that are posted again by themselves."""

from __future__ import annotations

import asyncio
import errno
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self

from nitro_emu.abi.limits import INLINE_BYTES, MAX_RDMA_BYTES, RNR_RETRY_FOREVER
from nitro_emu.aio.address import QpAddress
from nitro_emu.aio.buffers import Buffers
from nitro_emu.aio.handles import Handles, Remote
from nitro_emu.aio.mailbox import Mailbox, Receiver
from nitro_emu.aio.memory import Slice
from nitro_emu.aio.message import Message, Source, WriteNotification
from nitro_emu.aio.poller import CompletionPoller
from nitro_emu.aio.requests import Payload, Request, status_of_untrusted
from nitro_emu.errors import VerbsError
from nitro_emu.verbs import (
    CompletionQueue,
    ProtectionDomain,
    QpOptions,
    RecvRequest,
    SendOp,
    SendOps,
    Sge,
    WcFlags,
    WcOpcode,
    WorkCompletion,
)
from nitro_emu.verbs import QueuePair as VerbsQueuePair
from srd.notify import Notify
from srd.proto.wire.status import Status

BULK_BYTES: Final = 64 << 10
"""A request of so many bytes is of a bulk transfer: polling for its completion would take the processor from it."""
_POLL_BATCH: Final = 32
_ALL_OPS: Final = (
    SendOps.SEND | SendOps.SEND_WITH_IMM | SendOps.RDMA_READ | SendOps.RDMA_WRITE | SendOps.RDMA_WRITE_WITH_IMM
)


@dataclass(frozen=True, slots=True)
class QpSettings:
    """The settings of one queue pair."""

    send_requests: int = 64
    """Requests that the card has at a time; further ones wait in this process."""
    receive_buffers: int = 64
    """Messages, and writes with immediate, that can arrive before the application has released any."""
    buffer_bytes: int | None = None
    """The longest message. Default: what the device can send, a packet."""
    rnr_retry: int = RNR_RETRY_FOREVER
    """How often a send is repeated whose receiver has no buffer; 7: for ever."""
    qkey: int | None = None
    """The queue key, 32 bits. Default: a random one, so that only those can send here that have been told."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the card has made."""

    cq: CompletionQueue
    qp: VerbsQueuePair
    buffers: Buffers
    qkey: int

    @classmethod
    def make(cls, pd: ProtectionDomain, settings: QpSettings, *, poller: CompletionPoller) -> Self:
        """Make all of it, and post the receive buffers. Blocking. Raises VerbsError."""
        context = pd.context
        depth = settings.send_requests + settings.receive_buffers
        cq = CompletionQueue(context, depth, channel=poller.channel, with_source_gid=True)
        options = QpOptions(
            max_send_wr=settings.send_requests,
            max_recv_wr=settings.receive_buffers,
            max_inline_data=INLINE_BYTES,
            signal_all=True,
            send_ops=_ALL_OPS,
        )
        qp = VerbsQueuePair(pd, send_cq=cq, recv_cq=cq, options=options)
        qkey = secrets.randbits(32) if settings.qkey is None else settings.qkey
        qp.to_rts(qkey=qkey, rnr_retry=settings.rnr_retry)
        buffers = Buffers(
            pd,
            receives=settings.receive_buffers,
            sends=settings.send_requests,
            buffer_bytes=settings.buffer_bytes or context.attributes.mtu_bytes,
        )
        qp.post_recv(*(RecvRequest(index, (buffers.receive_sge(index),)) for index in range(settings.receive_buffers)))
        return cls(cq, qp, buffers, qkey)

    def destroy(self) -> None:
        """Destroy all of it. Blocking. Raises VerbsError."""
        self.qp.close()
        self.cq.close()
        self.buffers.close()


class QueuePair:
    """A queue pair, which sends to any other and receives from all that know its address. An async context manager.

    Made by `Device.queue_pair`. Requests complete in any order. Cancelling a future ends a request that still waits in
    this process; otherwise the card carries it out, and its memory must not be changed, and its region cannot be
    closed, before that.
    """

    def __init__(
        self,
        parts: _Parts,
        settings: QpSettings,
        *,
        poller: CompletionPoller,
        handles: Handles,
        receiver: Receiver | None,
        counted: Callable[[int], None],
        on_closed: Callable[[QueuePair], None],
    ) -> None:
        self.settings = settings
        self.cq = parts.cq
        self._parts, self._qp, self._buffers = parts, parts.qp, parts.buffers
        self.address = QpAddress(parts.qp.pd.context.attributes.gid, parts.qp.number, parts.qkey)
        self._poller, self._handles = poller, handles
        self._mailbox = Mailbox()
        self._receiver: Receiver = receiver or self._mailbox
        self._counted = counted
        self._on_closed = on_closed
        self._requests: dict[int, Request] = {}  # that the card has, by wr_id
        self._waiting: deque[Request] = deque()
        self._next = 0
        self._drained = Notify()
        self._error: VerbsError | None = None
        self._closing: asyncio.Future[None] | None = None
        poller.add(self)

    @classmethod
    async def create(
        cls,
        pd: ProtectionDomain,
        settings: QpSettings,
        *,
        poller: CompletionPoller,
        handles: Handles,
        receiver: Receiver | None,
        counted: Callable[[int], None],
        on_closed: Callable[[QueuePair], None],
    ) -> Self:
        """Create one, for the device. Raises VerbsError."""
        parts = await asyncio.to_thread(_Parts.make, pd, settings, poller=poller)
        return cls(
            parts, settings, poller=poller, handles=handles, receiver=receiver, counted=counted, on_closed=on_closed
        )

    # -- requests ---------------------------------------------------------------------------------------------------

    def send(self, to: Remote, payload: Payload, *, immediate: int | None = None) -> asyncio.Future[Status]:
        """Send a message of at most the device's MTU, optionally with a 32-bit immediate.

        The status is OK when the other end's card has put it into a buffer. The payload must not change before. Raises
        VerbsError: closed (EINVAL), the card is dead (EIO).
        """
        return self._post(SendOp.SEND, to, payload, immediate=immediate)

    def write(
        self, to: Remote, payload: Payload, *, rkey: int, remote_address: int, immediate: int | None = None
    ) -> asyncio.Future[Status]:
        """Write to memory that the other end has registered, at most 1 GiB. Raises as `send` does.

        Only a write with an immediate notifies the other end (`recv_write`), which takes one of its receive buffers.
        """
        return self._post(SendOp.RDMA_WRITE, to, payload, immediate=immediate, rkey=rkey, remote_address=remote_address)

    def read(self, to: Remote, into: Slice, *, rkey: int, remote_address: int) -> asyncio.Future[Status]:
        """Read from memory that the other end has registered, at most 1 GiB. Raises as `send` does."""
        return self._post(SendOp.RDMA_READ, to, into, rkey=rkey, remote_address=remote_address)

    def _post(
        self,
        op: SendOp,
        to: Remote,
        payload: Payload,
        *,
        immediate: int | None = None,
        rkey: int = 0,
        remote_address: int = 0,
    ) -> asyncio.Future[Status]:
        self._check()
        if to.handle is None:
            raise VerbsError(errno.EINVAL, f"{to.address.text()}: is closed; open it again")
        if immediate is not None and not 0 <= immediate < 1 << 32:
            raise VerbsError(errno.EINVAL, f"immediate: {immediate} is no 32-bit number")
        part = payload if isinstance(payload, Slice) else memoryview(payload).cast("B")
        self._check_length(op, part)
        view = part.view() if isinstance(part, Slice) else part
        future: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        request = Request(future, op, to, part, view, immediate, rkey, remote_address)
        self._waiting.append(request)
        future.add_done_callback(lambda done: self._forget(request) if done.cancelled() else None)
        if len(self._waiting) == 1:
            self._post_waiting()
        return future

    def _check_length(self, op: SendOp, part: Slice | memoryview) -> None:
        size = part.length if isinstance(part, Slice) else part.nbytes
        if size > MAX_RDMA_BYTES:
            raise VerbsError(errno.EINVAL, f"{size} bytes are more than {MAX_RDMA_BYTES}, which a request may have")
        if not isinstance(part, Slice) and size > self._buffers.buffer_bytes:
            what = "send it in parts" if op == SendOp.SEND else "register it, and give a Slice"
            raise VerbsError(
                errno.EINVAL, f"{size} bytes are more than a buffer of {self._buffers.buffer_bytes}; {what}"
            )

    def _forget(self, request: Request) -> None:
        """Drop a cancelled request that the card does not have yet."""
        if request in self._waiting:
            self._waiting.remove(request)
            request.release_memory()
            self._post_waiting()

    def _post_waiting(self) -> None:
        # The send queue may be larger than it was asked to be, and the completion queue has room for this many.
        while self._waiting and len(self._requests) < self.settings.send_requests and self._qp.send_queue.free:
            request = self._waiting[0]
            if request.to.handle is None or request.future.cancelled():
                self._waiting.popleft().end(Status.FLUSHED)
                continue
            needs_slot = self._needs_slot(request)
            if needs_slot and not self._buffers.has_slot:
                return
            self._waiting.popleft()
            try:
                self._write(request, needs_slot=needs_slot)
            except VerbsError:  # the card has died, or what the driver checks: the payload's length, for example
                request.end(Status.LOCAL_ERROR_QP_INTERNAL_ERROR)

    def _needs_slot(self, request: Request) -> bool:
        if isinstance(request.payload, Slice):
            return False
        return request.op != SendOp.SEND or request.payload.nbytes > INLINE_BYTES

    def _write(self, request: Request, *, needs_slot: bool) -> None:
        """Give a request to the card."""
        sge, data = None, None
        if isinstance(request.payload, Slice):
            sge = Sge(request.payload.address, request.payload.length, request.payload.memory.lkey)
        elif needs_slot:
            request.slot, sge = self._buffers.fill(request.payload)
            self._counted(sge.length)
        else:
            data = bytes(request.payload)
            self._counted(len(data))
        number, self._next = self._next, self._next + 1
        self._requests[number] = request
        try:
            self._build(number, request, sge=sge, data=data)
        except BaseException:
            del self._requests[number]
            self._free_slot(request)
            raise

    def _build(self, number: int, request: Request, *, sge: Sge | None, data: bytes | None) -> None:
        handle = request.to.handle
        if handle is None:
            raise VerbsError(errno.EINVAL, "the destination is closed")
        builder = self._qp.builder
        builder.start()
        builder.wr_id = number
        if request.op == SendOp.SEND:
            builder.send(immediate=request.immediate)
        elif request.op == SendOp.RDMA_WRITE:
            builder.rdma_write(request.rkey, address=request.remote_address, immediate=request.immediate)
        else:
            builder.rdma_read(request.rkey, address=request.remote_address)
        address = request.to.address
        builder.set_ud_address(handle, remote_qpn=address.qpn, remote_qkey=address.qkey)
        if sge is not None:
            builder.set_sge(sge)
        elif data is not None:
            builder.set_inline_data(data)
        builder.complete()

    def _free_slot(self, request: Request) -> None:
        if request.slot is not None:
            self._buffers.give_back(request.slot)
            request.slot = None

    @property
    def open_requests(self) -> int:
        """Requests that have not completed, those that wait in this process included."""
        return len(self._requests) + len(self._waiting)

    async def drain(self) -> None:
        """Wait until the card has done with all memory of requests, also with that of cancelled ones."""
        while self.open_requests:
            await self._drained.wait()

    # -- completions ------------------------------------------------------------------------------------------------

    def process(self) -> int:
        """Process some completions; return how many. For the poller. Raises VerbsError: the card is dead."""
        try:
            completions = self.cq.poll(_POLL_BATCH)
        except VerbsError as error:
            if error.errno != errno.EINVAL:
                raise
            return 1  # one of a request that does not exist (any more)
        for completion in completions:
            if completion.opcode >= WcOpcode.RECV:
                self._on_received(completion)
            else:
                self._on_completed(completion)
        if completions:
            self._post_waiting()
            if not self._requests:
                self._drained.notify()
        return len(completions)

    def _on_completed(self, completion: WorkCompletion) -> None:
        request = self._requests.pop(completion.wr_id, None)
        if request is not None:
            if len(request.view) >= BULK_BYTES:
                self._poller.suppress()
            self._free_slot(request)
            request.end(status_of_untrusted(completion.vendor_error))

    def _on_received(self, completion: WorkCompletion) -> None:
        index = completion.wr_id
        if completion.vendor_error:
            if completion.vendor_error != Status.FLUSHED:
                self._post_receive(index)
            return
        gid = self._handles.gid_of(completion.ah) or completion.src_gid
        source = Source(gid, completion.src_qp)
        if completion.opcode == WcOpcode.RECV_RDMA_WITH_IMM:
            self._post_receive(index)
            if completion.byte_len >= BULK_BYTES:
                self._poller.suppress()
            self._receiver.on_write(WriteNotification(source, completion.byte_len, completion.immediate))
            return
        message = Message(
            source,
            self._buffers.received(index, length=completion.byte_len),
            immediate=completion.immediate if completion.flags & WcFlags.WITH_IMM else None,
            release=lambda: self._post_receive(index),
            counted=self._counted,
        )
        self._receiver.on_message(message)

    def _post_receive(self, index: int) -> None:
        if self._error is None:
            try:
                self._qp.post_recv(RecvRequest(index, (self._buffers.receive_sge(index),)))
            except VerbsError as error:
                if error.errno != errno.EIO:  # that the card is dead is found by the poller
                    raise

    async def recv(self) -> Message:
        """Return the next message, in the order of completion. Raises VerbsError: closed, or the card is dead."""
        return await self._mailbox.recv()

    async def recv_write(self) -> WriteNotification:
        """Return the next write with immediate that has landed here. Raises VerbsError as `recv` does."""
        return await self._mailbox.recv_write()

    # -- the end ----------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._error is not None:
            raise VerbsError(self._error.errno, str(self._error))

    @property
    def ended(self) -> bool:
        """Whether it is closed, or the card dead."""
        return self._error is not None

    def end(self, status: Status, error: VerbsError) -> None:
        """End all open requests with a status, and let everything else raise `error`. For the device."""
        if self._error is not None:
            return
        self._error = error
        self._poller.remove(self)
        self._on_closed(self)
        requests = [*self._requests.values(), *self._waiting]
        self._requests.clear()
        self._waiting.clear()
        for request in requests:
            request.end(status)
        self._drained.notify()
        self._receiver.on_end(error)

    async def close(self) -> None:
        """Close it: open requests end with FLUSHED, messages that were not received are dropped. Raises VerbsError."""
        if self._closing is None:
            self.end(Status.FLUSHED, VerbsError(errno.EINVAL, "the queue pair is closed"))
            self._closing = asyncio.ensure_future(asyncio.to_thread(self._parts.destroy))
        await asyncio.shield(self._closing)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
