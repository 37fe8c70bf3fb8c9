"""One end of a connection, which `srd`'s file transfer uses like a peer of an endpoint.

1. A message that fits into a packet is one SEND. A longer one is written to a slot of the other end's window, and
   described by a SEND; without a free slot it waits. Its request is OK when both have been delivered.
2. The connection ends when the other end says so, when a request fails, when it breaks the rules, or when nothing was
   heard of it for SILENT_TICKS: a card reports that another card is gone, but not that a program has stopped.
3. Every request ends within REQUEST_TIMEOUT_S, and with the connection.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

from devmem.errors import DevmemError
from devmem.region import Region
from netns.base.addresses import host_port_text
from nitro_emu.aio import (
    Device,
    Memory,
    Message,
    QpAddress,
    QueuePair,
    Remote,
    Source,
    VerbsError,
    WriteNotification,
)
from nitro_emu.messages import layouts
from nitro_emu.messages.layouts import Kind, MessageError, Refuse, Welcome, Window, Written
from nitro_emu.messages.message import ReceivedMessage
from nitro_emu.messages.outgoing import Outgoing
from nitro_emu.messages.window import ReceiveWindow
from srd.errors import PeerError
from srd.notify import Notify
from srd.proto.wire.status import Status

TICK_S: Final = 1.0
"""How long nothing is heard of the other end before it is asked for a sign of life."""
SILENT_TICKS: Final = 10
"""After so many it counts as gone: its card answers, so its program hangs, or was stopped. Counted, not measured, as
this program may have been stopped itself."""
REQUEST_TIMEOUT_S: Final = 300.0
"""The same as `srd.proto.config.ProtocolConfig.request_timeout_s`."""
CLOSE_TIMEOUT_S: Final = 2.0
"""The same as `srd.config.EndpointConfig.close_timeout_s`."""
CLOSE_GRACE_S: Final = 1.0
"""Time for CLOSE to be delivered. Without it the other end takes this one for lost, and waits for it to come again."""

_REASONS: Final = {
    Status.REMOTE_ERROR_ABORT: "its card has closed the connection",
    Status.REMOTE_ERROR_BAD_ADDRESS: "its program is gone",
    Status.REMOTE_ERROR_BAD_DEST_QPN: "its program is gone",
    Status.LOCAL_ERROR_UNRESP_REMOTE: "no packet from its card",
    Status.REMOTE_ERROR_UNKNOWN_PEER: "its card was restarted",
    Status.LOCAL_ERROR_UNREACH_REMOTE: "no answer from its card",
    Status.REMOTE_ERROR_FEATURE_MISMATCH: "its card speaks another version of the protocol",
}


def reason_of(status: Status) -> str:
    """Return why a request has failed, for people."""
    return _REASONS.get(status, f"a request ended with {status.name}")


class MessagePeer:
    """A `srd.file_transfer.transport.Peer`: the other end of a connection, and a `Receiver` of its own queue pair."""

    can_send_mapped = False
    """A card needs memory that cannot become shorter."""

    def __init__(self, device: Device, *, gid: bytes) -> None:
        """`gid`: of the device at the other end."""
        self.address = QpAddress(gid, 1, 0).host_port
        self.landed_bytes = 0
        self.nonce = secrets.token_bytes(layouts.NONCE_BYTES)
        self.answer: asyncio.Future[tuple[Source, Welcome | Refuse] | None]
        """What the server says to this client; None: this end has ended before."""
        self.answer = asyncio.get_running_loop().create_future()
        self._device = device
        self._qp: QueuePair | None = None
        self._window: ReceiveWindow | None = None
        self._source: Source | None = None
        self._remote: Remote | None = None
        self._remote_window = Window(0, 0, 0, 0, 0)
        self._free_slots: list[int] = []
        self._used_slots: set[int] = set()  # delivered, or being delivered
        self._memories: dict[Region, asyncio.Future[Memory]] = {}
        self._open: dict[Outgoing, None] = {}  # in the order of their posting
        self._waiting: deque[Outgoing] = deque()  # of these, for a slot
        self._messages: deque[ReceivedMessage] = deque()
        self._changed = Notify()
        self._end: tuple[Status, str] | None = None
        self._closing: asyncio.Future[None] | None = None
        self._is_pinging = self._is_ponging = False
        self._silent_ticks = 0
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    async def create(cls, device: Device, *, gid: bytes, slots: int, slot_bytes: int) -> Self:
        """Make this end's queue pair, and its window of so many slots. Raises VerbsError and RegionError."""
        self = cls(device, gid=gid)
        try:
            self._window = await ReceiveWindow.create(device, slots=slots, slot_bytes=slot_bytes)
            self._qp = await device.queue_pair(receiver=self)
        except BaseException:
            await self._release()
            raise
        return self

    @property
    def own_window(self) -> Window:
        """What the other end needs to know. Raises PeerError: closed."""
        if self._window is None:
            raise self.error()
        return self._window.window

    @property
    def qp(self) -> QueuePair:
        """This end's queue pair. Raises PeerError: closed."""
        if self._qp is None:
            raise self.error()
        return self._qp

    def expect(self, source: Source) -> None:
        """Take messages of this queue pair, and of no other."""
        self._source = source

    def open(self, remote: Remote, window: Window) -> None:
        """Be able to send: `remote` is the other end's queue pair, which is closed with the peer."""
        self._remote, self._remote_window = remote, window
        self._source = Source(remote.address.gid, remote.address.qpn)
        self._free_slots = [*range(window.slots)]
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    # -- receiving --------------------------------------------------------------------------------------------------

    def on_message(self, message: Message) -> None:
        """Take a SEND."""
        is_kept = False
        try:
            if self._end is None:
                is_kept = self._take_untrusted(message)
        except MessageError as error:
            self.end(Status.REMOTE_ERROR_BAD_STATUS, f"sent {error}")
        finally:
            if not is_kept:
                message.release()

    def _take_untrusted(self, message: Message) -> bool:
        """Process a SEND; return whether it is kept. Raises MessageError."""
        if self._source is None:
            with suppress(MessageError):  # not of the server: that comes later
                self._take_answer_untrusted(message)
            return False
        if message.source != self._source:
            return False
        packet = message.view
        kind = layouts.kind_untrusted(packet)
        self._silent_ticks = 0
        if kind is Kind.DATA:
            immediate = layouts.data_immediate_untrusted(packet)
            self._deliver(ReceivedMessage(packet[layouts.DATA_BYTES :], immediate=immediate, release=message.release))
            return True
        if kind is Kind.WRITTEN and self._window is not None:
            self._deliver_long(self._window.on_written(layouts.written_untrusted(packet)))
        elif kind is Kind.CREDIT:
            self._on_credit_untrusted(layouts.credit_untrusted(packet))
        elif kind is Kind.PING:
            self._pong()
        elif kind is Kind.CLOSE:
            self.end(Status.OK, "closed by the other end")
        elif kind is not Kind.PONG:
            raise MessageError(f"a {kind.name}, which has no place here")
        return False

    def _take_answer_untrusted(self, message: Message) -> None:
        kind = layouts.kind_untrusted(message.view)
        if kind is Kind.WELCOME:
            answer: Welcome | Refuse = layouts.welcome_untrusted(message.view)
        elif kind is Kind.REFUSE:
            answer = layouts.refuse_untrusted(message.view)
        else:
            return
        if answer.nonce == self.nonce and not self.answer.done():
            if isinstance(answer, Welcome):
                self.expect(message.source)
            self.answer.set_result((message.source, answer))

    def on_write(self, written: WriteNotification) -> None:
        """Take the notification of a WRITE to the window."""
        if self._end is not None or self._window is None or written.source != self._source:
            return
        self._silent_ticks = 0
        try:
            self._deliver_long(self._window.on_landed(written.immediate, length=written.length))
        except MessageError as error:
            self.end(Status.REMOTE_ERROR_BAD_STATUS, f"sent {error}")

    def on_end(self, error: VerbsError) -> None:
        """Note that the queue pair is closed, or that this end's card is dead."""
        self.end(Status.LOCAL_ERROR_QP_INTERNAL_ERROR, f"{self._device.name}: {error}")

    def _deliver_long(self, written: Written | None) -> None:
        if written is None or self._window is None:
            return
        slot = written.slot
        view = self._window.copy_of(written)
        self._device.bytes_copied += len(view)
        self._deliver(ReceivedMessage(view, immediate=written.immediate, release=lambda: self._on_released(slot)))

    def _deliver(self, message: ReceivedMessage) -> None:
        self.landed_bytes += message.length
        self._messages.append(message)
        self._changed.notify()

    def _on_released(self, slot: int) -> None:
        if self._window is not None:
            self._window.release(slot)
            self._send_packet(layouts.pack_credit(slot))

    async def recv(self) -> ReceivedMessage:
        """Return the next message. Raises PeerError when the peer has ended."""
        while not self._messages:
            if self._end is not None:
                raise self.error()
            await self._changed.wait()
        return self._messages.popleft()

    # -- sending ----------------------------------------------------------------------------------------------------

    def post_send(
        self, region: Region, *, offset: int, length: int, immediate: int | None = None
    ) -> asyncio.Future[Status]:
        """Send a part of a region as one message. Raises RegionError: out of bounds, PeerError: ended, or closing."""
        view = region.view(offset, length=length)
        if self._end is not None or self._closing is not None or self._remote is None:
            view.release()
            raise self.error()
        loop = asyncio.get_running_loop()
        outgoing = Outgoing(loop.create_future(), region, offset, length, immediate, loop.time(), view)
        if length <= self._short_bytes:
            self._open[outgoing] = None
            data = layouts.pack_data_header(immediate) + bytes(view)
            self._post(outgoing, lambda qp, remote: [qp.send(remote, data)])
        elif length > self._remote_window.slot_bytes:
            outgoing.end(Status.REMOTE_ERROR_BAD_LENGTH)
        else:
            self._open[outgoing] = None
            self._waiting.append(outgoing)
            outgoing.future.add_done_callback(lambda done: self._forget(outgoing) if done.cancelled() else None)
            self._send_waiting()
        return outgoing.future

    @property
    def _short_bytes(self) -> int:
        """The longest message that is one SEND."""
        return min(self._device.mtu_bytes, self._remote_window.packet_bytes) - layouts.DATA_BYTES

    def _forget(self, outgoing: Outgoing) -> None:
        """Drop a cancelled message that waits for a slot; one that is being sent is delivered nevertheless."""
        if outgoing in self._waiting:
            self._waiting.remove(outgoing)
            self._finish(outgoing, Status.FLUSHED)

    def _send_waiting(self) -> None:
        """Write the messages that wait, as long as there are slots."""
        while self._waiting and self._free_slots and self._end is None:
            if self._waiting[0].future.cancelled():  # a credit may come before the loop calls `_forget`
                self._forget(self._waiting[0])
                continue
            memory = self._memory_of(self._waiting[0].region)
            if memory is None:
                return
            self._write(self._waiting.popleft(), memory)

    def _write(self, outgoing: Outgoing, memory: Memory) -> None:
        slot = self._free_slots.pop()
        self._used_slots.add(slot)
        window = self._remote_window
        described = layouts.pack_written(Written(slot, outgoing.length, outgoing.immediate))
        part = memory.slice(outgoing.offset, length=outgoing.length)
        address = window.address + slot * window.slot_bytes
        self._post(
            outgoing,
            lambda qp, remote: [
                qp.write(remote, part, rkey=window.rkey, remote_address=address, immediate=slot),
                qp.send(remote, described),
            ],
        )

    def _memory_of(self, region: Region) -> Memory | None:
        """Return a region's registration; None: it is being made, and `_send_waiting` is called then."""
        making = self._memories.get(region)
        if making is None:
            making = self._memories[region] = asyncio.ensure_future(self._device.register(region))
            making.add_done_callback(self._on_registered)
        return making.result() if making.done() and self._end is None else None

    def _on_registered(self, making: asyncio.Future[Memory]) -> None:
        if making.cancelled():
            return
        if (error := making.exception()) is not None:
            self.end(Status.LOCAL_ERROR_QP_INTERNAL_ERROR, f"{self._device.name}: {error}")
        else:
            self._send_waiting()

    def _on_credit_untrusted(self, slot: int) -> None:
        if slot not in self._used_slots:
            raise MessageError(f"the credit of slot {slot}, which is not in use")
        self._used_slots.remove(slot)
        self._free_slots.append(slot)
        self._send_waiting()

    def _post(
        self, outgoing: Outgoing | None, post: Callable[[QueuePair, Remote], list[asyncio.Future[Status]]]
    ) -> None:
        """Post the requests of a message, or (None) of this module's own; the first that fails ends the connection."""
        if self._qp is None or self._remote is None or self._end is not None:
            return
        try:
            futures = post(self._qp, self._remote)
        except VerbsError as error:
            self.end(Status.LOCAL_ERROR_QP_INTERNAL_ERROR, f"{self._device.name}: {error}")
            return
        if outgoing is not None:
            outgoing.left = len(futures)
        for future in futures:
            future.add_done_callback(lambda done: self._on_completed(outgoing, done))

    def _on_completed(self, outgoing: Outgoing | None, future: asyncio.Future[Status]) -> None:
        status = Status.FLUSHED if future.cancelled() else future.result()
        if status is not Status.OK:
            self.end(status, reason_of(status))
        elif outgoing is not None:
            outgoing.left -= 1
            if not outgoing.left:
                self._finish(outgoing, status)

    def _finish(self, outgoing: Outgoing, status: Status) -> None:
        if outgoing in self._open:
            del self._open[outgoing]
            outgoing.end(status)
            self._changed.notify()

    def _send_packet(self, packet: bytes, *, then: Callable[[], None] = lambda: None) -> None:
        """Send a packet of this module's own; `then` is called when it was delivered."""

        def post(qp: QueuePair, remote: Remote) -> list[asyncio.Future[Status]]:
            future = qp.send(remote, packet)
            future.add_done_callback(lambda _: then())
            return [future]

        self._post(None, post)

    # -- signs of life ----------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if self._end is not None:
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(TICK_S, self._tick)
        self._silent_ticks += 1
        oldest = next(iter(self._open), None)
        if self._silent_ticks > SILENT_TICKS:
            self.end(Status.LOCAL_ERROR_UNRESP_REMOTE, f"no packet from its program for {SILENT_TICKS * TICK_S:g} s")
        elif oldest is not None and loop.time() - oldest.posted_at > REQUEST_TIMEOUT_S:
            self.end(Status.LOCAL_ERROR_UNRESP_REMOTE, f"took no message for {REQUEST_TIMEOUT_S:g} s")
        elif self._silent_ticks > 1 and not self._is_pinging:
            self._is_pinging = True
            self._send_packet(bytes([Kind.PING]), then=self._on_pinged)

    def _on_pinged(self) -> None:
        self._is_pinging = False

    def _pong(self) -> None:
        """Answer a PING, unless an answer is under way, or this end cannot send yet."""
        if self._remote is not None and not self._is_ponging:
            self._is_ponging = True
            self._send_packet(bytes([Kind.PONG]), then=self._on_ponged)

    def _on_ponged(self) -> None:
        self._is_ponging = False

    # -- the end ----------------------------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """Whether the peer has ended. Messages that arrived before can still be received."""
        return self._end is not None

    def end(self, status: Status, reason: str) -> None:
        """End the connection: every open request, and everything that waits. Only the first call has an effect."""
        if self._end is not None:
            return
        self._end = (status, reason)
        if self._timer is not None:
            self._timer.cancel()
        if not self.answer.done():
            self.answer.set_result(None)
        self._waiting.clear()
        for outgoing in list(self._open):
            self._finish(outgoing, Status.REMOTE_ERROR_ABORT if status is Status.OK else status)
        self._changed.notify()

    @property
    def released(self) -> bool:
        """Whether it was closed, and has nothing of the device any more."""
        return self._closing is not None and self._closing.done()

    async def wait_ended(self) -> Status:
        """Wait until the peer has ended; return the status: OK if the other end has closed it."""
        while self._end is None:
            await self._changed.wait()
        return self._end[0]

    def error(self) -> PeerError:
        """Return the error with the status and the reason of the end."""
        status, reason = self._end or (Status.FLUSHED, "being closed")
        return PeerError(f"{host_port_text(*self.address)}: {reason}", status=status)

    async def close(self) -> None:
        """Complete what was posted, within CLOSE_TIMEOUT_S, tell the other end, and release everything."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                while self._open and self._end is None:
                    await self._changed.wait()
        if self._end is None and self._remote is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_GRACE_S):
                    await self._tell_closed()
        self.end(Status.FLUSHED, "closed")
        await self._release()

    async def _tell_closed(self) -> None:
        told = asyncio.Event()
        self._send_packet(bytes([Kind.CLOSE]), then=told.set)
        while self._end is None and not told.is_set():
            await told.wait()

    async def _release(self) -> None:
        """Release what this end has of the device. What fails has ended with the device."""
        while self._messages:
            self._messages.popleft().release()
        window, self._window = self._window, None
        qp, self._qp = self._qp, None
        remote, self._remote = self._remote, None
        making = [each for each in self._memories.values() if not each.cancelled()]
        self._memories.clear()
        registered = await asyncio.gather(*making, return_exceptions=True)
        memories = [memory for memory in registered if isinstance(memory, Memory)]
        resources = [each for each in (window, qp, *memories, remote) if each is not None]
        for ended in await asyncio.gather(*(each.close() for each in resources), return_exceptions=True):
            if isinstance(ended, BaseException) and not isinstance(ended, VerbsError | DevmemError):
                raise ended
