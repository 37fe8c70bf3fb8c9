"""One client of the server: its negotiation, then its requests, many at a time.

Theory of operation. The conversation is a generator that yields how many bytes it is to get next; what arrives drives
it. A request is begun when it is there and there is room for it, and is a task only while it waits. Its answer is sent
at once, before whatever else the event loop has to do.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable, Generator, Sequence
from typing import Final, cast

from netns.base.tasks import Tasks
from nitro_emu.ebs.device import BlockExtent
from nitro_emu.ebs.errors import DeviceError
from nitro_emu.ebs.front import Answer, Front
from nitro_emu.ebs.nbd.intake import Intake
from nitro_emu.ebs.nbd.negotiation import AfterOption, Negotiation
from nitro_emu.ebs.nbd.wire import (
    ALLOWED_FLAGS,
    CLIENT_FLAGS,
    ERRORS,
    GREETING,
    KNOWN_CLIENT_FLAGS,
    MAX_DESCRIPTORS,
    MAX_PAYLOAD_BYTES,
    NO_ZEROES,
    OPTION,
    REQUEST,
    Flag,
    NbdCommand,
    NbdError,
    WireRequest,
    data_chunk,
    done_chunk,
    error_chunk,
    option_untrusted,
    request_untrusted,
    simple_reply,
    status_chunk,
)
from nitro_emu.ebs.request import BlockOperation, VolumeRequest

NEGOTIATION_S: Final = 10.0
"""How long a client may take to negotiate; those of others need milliseconds."""
LAST_ANSWERS_S: Final = 5.0
"""How long the answers to the last requests of a connection may take."""
MAX_OPTIONS: Final = 64
"""That one client may send: qemu sends five."""
MAX_REQUESTS: Final = 128
"""Open at a time: a queue's depth of 128 is what NVMe drivers use. One more waits in the socket."""
MAX_OPEN_BYTES: Final = 2 * MAX_PAYLOAD_BYTES
"""Of the requests that are open."""

_COMMANDS: Final = {
    NbdCommand.READ: BlockOperation.READ,
    NbdCommand.WRITE: BlockOperation.WRITE,
    NbdCommand.FLUSH: BlockOperation.FLUSH,
    NbdCommand.TRIM: BlockOperation.TRIM,
    NbdCommand.WRITE_ZEROES: BlockOperation.WRITE_ZEROES,
    NbdCommand.BLOCK_STATUS: BlockOperation.EXTENTS,
}
Part = bytes | bytearray
"""Of what a client sends."""
_log: Final = logging.getLogger(__name__)


class NbdSession(asyncio.BufferedProtocol):
    """A connected client, as asyncio has it: a protocol."""

    def __init__(
        self, front: Front, *, name: str, on_made: Callable[[NbdSession], bool], on_end: Callable[[NbdSession], None]
    ) -> None:
        """`on_made`: returns whether the client may stay; `on_end`: it has gone, and its requests have ended."""
        self._front = front
        self._agreed = Negotiation(name=name, size_bytes=front.size_bytes)
        self._on_made = on_made
        self._on_end = on_end
        self._intake = Intake()
        self._conversation = self._converse()
        self._wanted = 0  # bytes that the conversation gets next
        self._coming_bytes = 0  # of the request that comes
        self._tasks = Tasks()
        self._open = 0  # requests that have not ended, or whose answers the client does not take
        self._open_bytes = 0
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._is_held = False  # there is no room for another request
        self._is_ending = self._has_gone = False

    # -- what asyncio tells -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to negotiate."""
        self._transport = cast("asyncio.Transport", transport)
        self._descriptor: int = transport.get_extra_info("socket").fileno()
        self._timer = asyncio.get_running_loop().call_later(NEGOTIATION_S, self.end)
        if self._on_made(self):
            self._wanted = next(self._conversation)
        else:
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the intake knows what comes
        """Return where to receive."""
        return self._intake.space()

    def buffer_updated(self, nbytes: int) -> None:
        """Take what has come."""
        self._intake.received(nbytes)
        self._go_on()

    def eof_received(self) -> bool:
        """Take no more; what was asked is still answered."""
        self.end()
        return True

    def pause_writing(self) -> None:
        """Have requests stay open that are answered."""
        self._may_write.clear()

    def resume_writing(self) -> None:
        """Let them end."""
        self._may_write.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - it has gone, for whatever reason
        """Wait for the requests under way only."""
        self._is_ending = self._has_gone = True
        self._timer.cancel()
        self._may_write.set()
        self._check_end()

    # -- the end ----------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Take no more requests, and leave when all have ended. A client that does not take its answers loses them."""
        if not self._is_ending:
            self._is_ending = True
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(LAST_ANSWERS_S, self._transport.abort)
            self._check_end()

    def _check_end(self) -> None:
        if self._is_ending and not self._open:
            self._transport.close()
            if self._has_gone:
                self._on_end(self)

    # -- what the client sends --------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Go on with the conversation, as far as its parts have come, and there is room for them."""
        if self._is_ending:
            self._intake.drop()
            return
        try:
            while self._has_room():
                if (part := self._intake.take(self._wanted)) is None:
                    return
                self._wanted = self._conversation.send(part)
        except StopIteration:
            self.end()
        except NbdError as error:
            _log.warning("an NBD client is disconnected: %s", error)
            self.end()
        else:
            self._is_held = True
            self._transport.pause_reading()

    def _has_room(self) -> bool:
        if not self._open:
            return True
        return self._open < MAX_REQUESTS and self._open_bytes + self._coming_bytes <= MAX_OPEN_BYTES

    def _converse(self) -> Generator[int, Part, None]:
        """Negotiate, and begin requests, until the client leaves. Raises NbdError."""
        if not (yield from self._negotiate()):
            return
        self._timer.cancel()
        while True:
            asked = request_untrusted((yield REQUEST.size))
            if asked.kind is NbdCommand.DISC:
                return
            size_bytes = asked.length_bytes if asked.kind in {NbdCommand.READ, NbdCommand.WRITE} else 0
            self._coming_bytes = min(size_bytes, MAX_PAYLOAD_BYTES)
            data = yield (size_bytes if asked.has_payload else 0)
            self._coming_bytes = 0
            self._open += 1
            self._open_bytes += size_bytes
            self._tasks.begin(self._answer(asked, data, size_bytes))

    def _negotiate(self) -> Generator[int, Part, bool]:
        """Return whether requests follow. Raises NbdError."""
        self._transport.write(GREETING)
        (flags,) = CLIENT_FLAGS.unpack((yield CLIENT_FLAGS.size))
        if flags & ~KNOWN_CLIENT_FLAGS:
            raise NbdError(f"flags {flags:#x} of a client are unknown")
        self._agreed.sends_zeroes = not flags & NO_ZEROES
        for _ in range(MAX_OPTIONS):
            option, length = option_untrusted((yield OPTION.size))
            answer, outcome = self._agreed.answer_untrusted(option, bytes((yield length)))
            self._transport.write(answer)
            if outcome is not AfterOption.MORE:
                return outcome is AfterOption.TRANSMISSION
        raise NbdError(f"more than {MAX_OPTIONS} options")

    # -- requests ---------------------------------------------------------------------------------------------------

    async def _answer(self, asked: WireRequest, data: Part, size_bytes: int) -> None:
        """Carry a request out, and send the answer; what fails is answered, too."""
        try:
            answer = await self._front.carry_out(self._request_untrusted(asked), data=memoryview(data))
            parts = self._parts(asked, answer)
        except DeviceError as error:
            parts = self._failure(asked, errno_value=error.errno_value, text=str(error))
        except Exception as error:  # noqa: BLE001 - the other requests go on, whatever it is
            _log.warning("a request failed", exc_info=error)
            parts = self._failure(asked, errno_value=errno.EIO, text="internal error")
        self._send(parts)
        await self._may_write.wait()
        self._forget(size_bytes)

    def _forget(self, size_bytes: int) -> None:
        self._open -= 1
        self._open_bytes -= size_bytes
        self._check_end()
        if self._is_held and not self._is_ending and self._has_room():
            self._is_held = False
            self._transport.resume_reading()
            self._go_on()

    def _send(self, parts: Sequence[bytes | memoryview]) -> None:
        """Send as much as the socket takes now, and have the transport send the rest."""
        if self._transport.is_closing():
            return
        if not self._transport.get_write_buffer_size():
            try:
                sent = os.writev(self._descriptor, parts)
            except BlockingIOError:
                sent = 0
            except OSError:  # it has gone, which asyncio tells
                return
            parts = _behind(parts, sent)
        if parts:
            self._transport.writelines(parts)

    def _request_untrusted(self, asked: WireRequest) -> VolumeRequest:
        """Return a request whose bounds are right. Raises DeviceError, which the client is told."""
        if asked.kind is None or asked.flags & ~int(ALLOWED_FLAGS[asked.kind]):
            raise DeviceError(errno.EINVAL, "this command, or one of its flags, is not served")
        if asked.kind is NbdCommand.READ and asked.length_bytes > MAX_PAYLOAD_BYTES:
            raise DeviceError(errno.EINVAL, f"a read has at most {MAX_PAYLOAD_BYTES} bytes")
        if asked.kind is NbdCommand.BLOCK_STATUS and not (self._agreed.has_context and asked.length_bytes):
            raise DeviceError(errno.EINVAL, "block status needs base:allocation, and a length")
        if asked.kind is NbdCommand.FLUSH:
            return VolumeRequest(command=BlockOperation.FLUSH)
        if asked.offset + asked.length_bytes > self._front.size_bytes:
            beyond = errno.ENOSPC if asked.kind in {NbdCommand.WRITE, NbdCommand.WRITE_ZEROES} else errno.EINVAL
            raise DeviceError(beyond, f"the volume ends at {self._front.size_bytes}")
        return VolumeRequest(
            command=_COMMANDS[asked.kind],
            offset=asked.offset,
            length_bytes=asked.length_bytes,
            fua=bool(asked.flags & Flag.FUA),
            may_trim=not asked.flags & Flag.NO_HOLE,
        )

    def _parts(self, asked: WireRequest, answer: Answer) -> list[bytes | memoryview]:
        if asked.kind is NbdCommand.READ:
            assert isinstance(answer, memoryview)  # noqa: S101 - as Front.carry_out says
            if not self._agreed.is_structured:
                return [simple_reply(asked.cookie), answer]
            if not answer:
                return [done_chunk(asked.cookie)]  # a chunk of data has at least one byte
            return [data_chunk(asked.cookie, offset=asked.offset, length_bytes=len(answer)), answer]
        if asked.kind is NbdCommand.BLOCK_STATUS:
            assert isinstance(answer, list)  # noqa: S101 - likewise
            return [status_chunk(asked.cookie, _told(answer, only_one=bool(asked.flags & Flag.REQ_ONE)))]
        return [simple_reply(asked.cookie)]

    def _failure(self, asked: WireRequest, *, errno_value: int, text: str) -> list[bytes | memoryview]:
        error = errno_value if errno_value in ERRORS else errno.EIO
        if self._agreed.is_structured and asked.kind in {NbdCommand.READ, NbdCommand.BLOCK_STATUS}:
            return [error_chunk(asked.cookie, error=error, text=text)]
        return [simple_reply(asked.cookie, error=error)]


def _told(extents: list[BlockExtent], *, only_one: bool) -> list[BlockExtent]:
    return extents[: 1 if only_one else MAX_DESCRIPTORS]


def _behind(parts: Sequence[bytes | memoryview], length: int) -> list[bytes | memoryview]:
    """Return what is left of parts behind so many bytes."""
    left = list[bytes | memoryview]()
    for part in parts:
        if length < len(part):
            left.append(memoryview(part)[length:])
        length = max(length - len(part), 0)
    return left
