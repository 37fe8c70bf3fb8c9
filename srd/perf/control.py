"""The control channel: JSON objects with a length before each, on a byte stream of a peer.

A length is 32 bits, in network byte order. What arrives is bounded, and decoded by functions that raise `PerfError`
only; it ends the test that it belongs to, nothing else.
"""

from __future__ import annotations

import asyncio
import json
import struct
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final

from netns.base.printable import printable
from srd.perf.errors import PerfError

VERSION: Final = 3
"""Of the messages; another one is refused."""
MAX_REQUEST_BYTES: Final = 64 << 10
"""Longest message to a server: figures of MAX_STREAMS streams."""
MAX_REPLY_BYTES: Final = 4 << 20
"""Longest message to a client: with the server's output."""
MAX_OUTPUT_BYTES: Final = 1 << 20
"""Longest output that a server sends; what is longer stays there."""
MAX_TEXT: Final = 1000
"""Characters of a reason."""
_LENGTH: Final = struct.Struct("!I")


class ControlKind(StrEnum):
    """What a message says; who sends it is in the package's description."""

    TEST = "test"
    READY = "ready"
    REFUSED = "refused"
    JOIN = "join"
    START = "start"
    FINISHED = "finished"
    END = "end"
    RESULTS = "results"
    FAILED = "failed"
    SIZE = "size"
    BEGIN = "begin"
    CHECK = "check"
    FIGURES = "figures"
    ANSWER = "answer"


Fields = dict[str, Any]


def encode(kind: ControlKind, **fields: object) -> bytes:
    """Return a message with its length."""
    body = json.dumps({"kind": kind, **fields}).encode()
    return _LENGTH.pack(len(body)) + body


def decode_untrusted(body: bytes) -> tuple[ControlKind, Fields]:
    """Decode a message without its length. Raises PerfError, and nothing else."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise PerfError("the other end sent what is no JSON") from error
    if not isinstance(message, dict):
        raise PerfError("the other end sent no message")
    try:
        kind = ControlKind(message.pop("kind", ""))
    except ValueError as error:
        raise PerfError("the other end sent a message of an unknown kind") from error
    return kind, message


def reason_untrusted(fields: Fields) -> str:
    """Return the other end's reason as one line that is safe to print."""
    return printable(str(fields.get("reason", "no reason given"))[:MAX_TEXT])


def counts_untrusted(fields: Fields, *, streams: int) -> list[int]:
    """Return the bytes that the other end has sent, by stream. Raises PerfError, and nothing else."""
    sent = fields.get("sent")
    if not isinstance(sent, list) or len(sent) != streams:
        raise PerfError("the other end does not say what it has sent")
    if not all(type(count) is int and 0 <= count < 1 << 63 for count in sent):
        raise PerfError("the other end says that it has sent what is no number of bytes")
    return sent


class Control:
    """One end of a control channel."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, most_bytes: int = MAX_REQUEST_BYTES
    ) -> None:
        """Use a stream; `most_bytes`: longest message that is accepted."""
        self._reader, self._writer = reader, writer
        self._most_bytes = most_bytes

    async def send(self, kind: ControlKind, **fields: object) -> None:
        """Send a message. Raises PerfError when the other end is gone."""
        try:
            self._writer.write(encode(kind, **fields))
            await self._writer.drain()
        except (ConnectionError, RuntimeError) as error:
            raise PerfError(f"the control channel has ended: {error}") from error

    async def receive(self, *wanted: ControlKind) -> tuple[ControlKind, Fields]:
        """Return the next message. Raises PerfError for another kind, for what is no message, and at the end.

        FAILED and REFUSED raise PerfError with their reason unless they are wanted.
        """
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            if length > self._most_bytes:
                raise PerfError(f"the other end sent a message of {length} bytes; {self._most_bytes} are allowed")
            body = await self._reader.readexactly(length)
        except asyncio.IncompleteReadError as error:
            raise PerfError("the other end has closed the control channel") from error
        except ConnectionError as error:
            raise PerfError(f"the control channel has ended: {error}") from error
        kind, fields = decode_untrusted(body)
        if kind in wanted:
            return kind, fields
        if kind in (ControlKind.FAILED, ControlKind.REFUSED):
            raise PerfError(reason_untrusted(fields))
        raise PerfError(f"the other end sent {kind} where {' or '.join(wanted)} was expected")

    async def ended(self, *, within_s: float) -> None:
        """Say no more, and wait until the other end says no more, within a bound; what it still sends is ignored."""
        with suppress(OSError):  # a connection that is gone has ended, too
            self._writer.write_eof()
            async with asyncio.timeout(within_s):
                while await self._reader.read(MAX_REQUEST_BYTES):
                    pass

    def close(self) -> None:
        """End it, once all that was sent has arrived."""
        self._writer.close()
