"""A client that says what a test wants, byte by byte: written from NBD's doc/proto.md, not from the server."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

OPTION_MAGIC = b"IHAVEOPT"
REPLY_MAGIC = 0x3E889045565A9
READ, WRITE, DISC, FLUSH, TRIM, WRITE_ZEROES, BLOCK_STATUS = 0, 1, 2, 3, 4, 6, 7
FUA, NO_HOLE, DF, REQ_ONE = 1, 2, 4, 8


@dataclass(frozen=True)
class Answer:
    cookie: int
    error: int = 0
    payload: bytes = b""


def text(name: bytes) -> bytes:
    return struct.pack(">I", len(name)) + name


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.is_structured = False
        self.size_bytes = 0
        self.flags = 0

    @classmethod
    async def connect(cls, path: Path, *, flags: int = 3) -> Self:
        reader, writer = await asyncio.open_unix_connection(path)
        client = cls(reader, writer)
        assert await reader.readexactly(18) == b"NBDMAGICIHAVEOPT\0\3"
        writer.write(struct.pack(">I", flags))
        return client

    @classmethod
    async def attached(cls, path: Path, *, structured: bool = True, name: bytes = b"vol-1") -> Self:
        """A client whose requests may begin; with structured replies it has base:allocation."""
        client = await cls.connect(path)
        if structured:
            assert await client.option(8) == [(1, b"")]
            client.is_structured = True
            query = text(name) + struct.pack(">I", 1) + text(b"base:allocation")
            assert await client.option(10, query) == [(4, b"\0\0\0\1base:allocation"), (1, b"")]
        *infos, ack = await client.option(7, text(name) + b"\0\0")
        assert ack == (1, b"")
        (found,) = (info for kind, info in infos if kind == 3 and info[:2] == b"\0\0")
        client.size_bytes, client.flags = struct.unpack(">QH", found[2:])
        return client

    async def option(self, option: int, data: bytes = b"") -> list[tuple[int, bytes]]:
        """Send an option; return type and data of its answers up to the last one."""
        self.writer.write(OPTION_MAGIC + struct.pack(">II", option, len(data)) + data)
        answers = []
        while True:
            magic, about, kind, length = struct.unpack(">QIII", await self.reader.readexactly(20))
            assert (magic, about) == (REPLY_MAGIC, option)
            answers.append((kind, await self.reader.readexactly(length)))
            if kind == 1 or kind >> 31:
                return answers

    def send(
        self, command: int, *, cookie: int = 7, offset: int = 0, length: int = 0, flags: int = 0, data: bytes = b""
    ) -> None:
        self.writer.write(
            struct.pack(">IHHQQI", 0x25609513, flags, command, cookie, offset, length or len(data)) + data
        )

    async def answer(self, *, read_bytes: int = 0) -> Answer:
        """Return the next answer; `read_bytes`: of the data behind a simple reply that is no error."""
        (magic,) = struct.unpack(">I", await self.reader.readexactly(4))
        if magic == 0x67446698:
            error, cookie = struct.unpack(">IQ", await self.reader.readexactly(12))
            return Answer(cookie, error, await self.reader.readexactly(0 if error else read_bytes))
        assert magic == 0x668E33EF
        flags, kind, cookie, length = struct.unpack(">HHQI", await self.reader.readexactly(16))
        assert flags == 1, "one chunk an answer"
        payload = await self.reader.readexactly(length)
        if kind == 0x8001:
            error, message_bytes = struct.unpack(">IH", payload[:6])
            assert len(payload) == 6 + message_bytes
            return Answer(cookie, error, payload[6:])
        return Answer(cookie, 0, payload)

    async def asks(self, command: int, *, read_bytes: int = 0, **fields: Any) -> Answer:
        """Send a request, and return its answer."""
        self.send(command, **fields)
        return await self.answer(read_bytes=read_bytes)

    async def ended(self) -> bytes:
        """Return what comes before the server ends the connection."""
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return b""

    def stop_reading(self) -> None:
        """Let what the server sends stay in the socket."""
        transport = self.writer.transport
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()

    def close(self) -> None:
        self.writer.close()
