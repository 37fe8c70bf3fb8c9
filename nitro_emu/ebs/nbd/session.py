"""One client of the server: its negotiation, then its requests, many at a time."""

from __future__ import annotations

import asyncio
import errno
import logging
from contextlib import suppress
from typing import Final

from nitro_emu.ebs.device import BlockExtent
from nitro_emu.ebs.errors import DeviceError
from nitro_emu.ebs.front import Answer, Front
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
_log: Final = logging.getLogger(__name__)


class NbdSession:
    """A connected client."""

    def __init__(self, front: Front, *, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._front = front
        self._reader = reader
        self._writer = writer
        self._agreed = Negotiation(name=name, size_bytes=front.size_bytes)
        self._open: set[asyncio.Task[None]] = set()
        self._open_bytes = 0
        self._room = asyncio.Event()

    async def serve(self) -> None:
        """Serve the client until it leaves or breaks the protocol; its requests have ended then."""
        try:
            async with asyncio.timeout(NEGOTIATION_S):
                goes_on = await self._negotiate()
            while goes_on and await self._take_request():
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass  # it has gone, or took too long
        except NbdError as error:
            _log.warning("an NBD client is disconnected: %s", error)
        finally:
            await self._end()

    async def _end(self) -> None:
        """Return when all requests have ended. A client that does not take its answers in time loses them."""
        if self._open:
            await asyncio.wait(self._open, timeout=LAST_ANSWERS_S)
        self._writer.close()
        if self._open:
            self._writer.transport.abort()
            await asyncio.wait(self._open)

    # -- negotiation ------------------------------------------------------------------------------------------------

    async def _negotiate(self) -> bool:
        """Return whether requests follow. Raises NbdError, OSError, IncompleteReadError."""
        self._writer.write(GREETING)
        (flags,) = CLIENT_FLAGS.unpack(await self._reader.readexactly(CLIENT_FLAGS.size))
        if flags & ~KNOWN_CLIENT_FLAGS:
            raise NbdError(f"flags {flags:#x} of a client are unknown")
        self._agreed.sends_zeroes = not flags & NO_ZEROES
        for _ in range(MAX_OPTIONS):
            option, length = option_untrusted(await self._reader.readexactly(OPTION.size))
            answer, outcome = self._agreed.answer_untrusted(option, await self._reader.readexactly(length))
            self._writer.write(answer)
            await self._writer.drain()
            if outcome is not AfterOption.MORE:
                return outcome is AfterOption.TRANSMISSION
        raise NbdError(f"more than {MAX_OPTIONS} options")

    # -- requests ---------------------------------------------------------------------------------------------------

    async def _take_request(self) -> bool:
        """Read a request and begin it; return whether more may follow. Raises as `_negotiate`."""
        asked = request_untrusted(await self._reader.readexactly(REQUEST.size))
        if asked.kind is NbdCommand.DISC:
            return False
        size_bytes = asked.length_bytes if asked.kind in {NbdCommand.READ, NbdCommand.WRITE} else 0
        await self._have_room(min(size_bytes, MAX_PAYLOAD_BYTES))
        data = await self._reader.readexactly(size_bytes) if asked.has_payload else b""
        task = asyncio.ensure_future(self._answer(asked, data))
        self._open.add(task)
        self._open_bytes += size_bytes
        task.add_done_callback(lambda ended: self._forget(ended, size_bytes))
        return True

    async def _have_room(self, size_bytes: int) -> None:
        while len(self._open) >= MAX_REQUESTS or (self._open and self._open_bytes + size_bytes > MAX_OPEN_BYTES):
            self._room.clear()
            await self._room.wait()

    def _forget(self, task: asyncio.Task[None], size_bytes: int) -> None:
        self._open.remove(task)
        self._open_bytes -= size_bytes
        self._room.set()

    async def _answer(self, asked: WireRequest, data: bytes) -> None:
        """Carry a request out, and send the answer; what fails is answered, too."""
        try:
            answer = await self._front.carry_out(self._request_untrusted(asked), data=memoryview(data))
            parts = self._parts(asked, answer)
        except DeviceError as error:
            parts = self._failure(asked, errno_value=error.errno_value, text=str(error))
        except Exception as error:  # noqa: BLE001 - the other requests go on, whatever it is
            _log.warning("a request failed", exc_info=error)
            parts = self._failure(asked, errno_value=errno.EIO, text="internal error")
        with suppress(OSError):  # it has gone
            self._writer.writelines(parts)
            await self._writer.drain()

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
