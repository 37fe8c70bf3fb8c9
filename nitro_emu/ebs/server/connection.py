"""One writer of a server: its commands in, their replies and what was read out, without a task that waits for either.

Commands are begun in the order in which they come, SLOTS_OF_A_WRITER at a time. The data of a write is used where it
has landed: its message, and with it the writer's credit, is kept until the write has ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from devmem import Region
from netns.base.tasks import Tasks
from nitro_emu.ebs.capsule import (
    COMMAND_BYTES,
    MAX_IO_BYTES,
    READS,
    CapsuleCommand,
    CapsuleError,
    CapsuleReply,
    command_untrusted,
)
from nitro_emu.ebs.server.replica import Transfer
from srd import Message, MessageBatch, Peer, PeerError, Status
from srd.send_memory import SendMemory, in_place

SLOTS: Final = 32
"""Of 1 MiB, for what commands read."""
SLOTS_OF_A_WRITER: Final = 16
"""Commands at a time, so that a writer that does not take its data leaves some slots to the others."""

_NOTHING: Final = memoryview(b"")
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReadSlot:
    """Memory for what one command reads."""

    address: int
    view: memoryview


class ServerMemory:
    """The slots that all writers share."""

    def __init__(self) -> None:
        self._region = Region(SLOTS * MAX_IO_BYTES)
        self._all = [
            ReadSlot(self._region.address + at, self._region.view(at, length=MAX_IO_BYTES))
            for at in range(0, SLOTS * MAX_IO_BYTES, MAX_IO_BYTES)
        ]
        self._free = list(self._all)
        self._count = asyncio.Semaphore(SLOTS)

    async def take(self) -> ReadSlot:
        """Return a slot, once there is one."""
        await self._count.acquire()
        return self._free.pop()

    def give_back(self, slot: ReadSlot) -> None:
        """Return it."""
        self._free.append(slot)
        self._count.release()

    def close(self) -> None:
        """Unmap it; after the endpoint was closed."""
        for slot in self._all:
            slot.view.release()
        self._region.close()


class WriterConnection:
    """A writer that is connected; see `srd.handler.PeerHandler`."""

    def __init__(
        self,
        peer: Peer,
        *,
        memory: ServerMemory,
        tasks: Tasks,
        reply: Callable[[CapsuleCommand, Transfer], Awaitable[CapsuleReply | None]],
    ) -> None:
        """`tasks`: in which commands are done; `reply`: does one; None: what it has pushed is the reply."""
        self._peer = peer
        self._memory = memory
        self._tasks = tasks
        self._reply = reply
        self._waiting = deque[Message]()
        self._open = 0
        self._sent: dict[int, ReadSlot | SendMemory] = {}  # what is kept, by request
        peer.attach(self)

    # -- what the peer tells ------------------------------------------------------------------------------------------

    def on_message(self, message: Message | MessageBatch) -> None:
        """Take a command, or several."""
        is_more = True
        while is_more:
            single, is_more = (message, False) if isinstance(message, Message) else message.take()
            if self._open < SLOTS_OF_A_WRITER:
                self._begin(single)
            else:
                self._waiting.append(single)

    def on_completion(self, request: int, *, status: Status) -> None:
        """Free what a reply was sent from. If it has failed, its writer does not wait for it any more."""
        if status is not Status.OK:
            _log.debug("%s: %s", self._peer, status.name)
        kept = self._sent.pop(request)
        if isinstance(kept, ReadSlot):
            self._memory.give_back(kept)
        else:
            kept.view.release()

    def on_ended(self) -> None:
        """Forget what has not begun."""
        if self._peer.error().status is not Status.OK:
            _log.info("%s", self._peer.error())
        while self._waiting:
            self._waiting.popleft().release()

    # -- commands -----------------------------------------------------------------------------------------------------

    def _begin(self, message: Message) -> None:
        """Begin a command, or end a writer that sends none."""
        if self._peer.ended:
            message.release()
            return
        views = list(message.views())
        whole = views[0] if len(views) == 1 else message.gather(bytearray(message.length))
        try:
            number, command = _number_untrusted(message.immediate), command_untrusted(whole)
        except CapsuleError as error:
            message.release()
            _log.warning("%s: %s", self._peer, error)
            self._peer.fail(str(error))
            return
        self._open += 1
        self._tasks.start(self._do(message, command, number, data=whole[COMMAND_BYTES:]))

    async def _do(self, message: Message, command: CapsuleCommand, number: int, *, data: memoryview) -> None:
        slot = await self._memory.take() if command.opcode in READS else None
        transfer = _Transfer(data, slot)
        try:
            reply = await self._reply(command, transfer)
            with suppress(PeerError):  # it has ended, and waits for nothing any more
                if reply is not None:
                    self._send(reply, number)
                elif slot is not None:
                    self._write(slot, transfer.pushed_bytes, key=command.key, number=number)
                    slot = None
        finally:
            if slot is not None:
                self._memory.give_back(slot)
            message.release()
            self._open -= 1
            if self._waiting:
                self._begin(self._waiting.popleft())

    def _send(self, reply: CapsuleReply, number: int) -> None:
        memory = in_place(reply.encode())
        self._sent[self._peer.post(memory.address, length=memory.length, immediate=number)] = memory

    def _write(self, slot: ReadSlot, length_bytes: int, *, key: int, number: int) -> None:
        request = self._peer.write(slot.address, length=length_bytes, key=key, target_offset=0, immediate=number)
        self._sent[request] = slot


def _number_untrusted(immediate: int | None) -> int:
    """Return a command's number. Raises CapsuleError."""
    if immediate is None:
        raise CapsuleError("a command without a number")
    return immediate


class _Transfer:
    """The data of one command; see `Transfer`."""

    def __init__(self, data: memoryview, slot: ReadSlot | None) -> None:
        self.data = data
        self.memory = _NOTHING if slot is None else slot.view
        self.pushed_bytes = 0

    def push(self, length_bytes: int) -> None:
        """See Transfer."""
        self.pushed_bytes = length_bytes
