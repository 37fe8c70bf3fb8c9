"""NBD's layouts and numbers (NetworkBlockDevice/nbd, doc/proto.md). All integers are big-endian."""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final

from nitro_emu.ebs.device import BlockExtent
from nitro_emu.ebs.errors import VolumeError


class NbdError(VolumeError):
    """A client broke the protocol, and its connection ends."""


GREETING: Final = b"NBDMAGIC" + b"IHAVEOPT" + struct.pack(">H", 0b11)  # fixed newstyle, no zeroes
OPTION: Final = struct.Struct(">8sII")  # magic, option, length
OPTION_REPLY: Final = struct.Struct(">QIII")  # magic, option, type, length
REQUEST: Final = struct.Struct(">IHHQQI")  # magic, flags, command, cookie, offset, length
SIMPLE_REPLY: Final = struct.Struct(">IIQ")  # magic, error, cookie
CHUNK: Final = struct.Struct(">IHHQI")  # magic, flags, type, cookie, length
CLIENT_FLAGS: Final = struct.Struct(">I")
EXPORT_NAME_REPLY: Final = struct.Struct(">QH")  # size, transmission flags; 124 zeroes may follow

_OPTION_REPLY_MAGIC: Final = 0x3E889045565A9
_REQUEST_MAGIC: Final = 0x25609513
_SIMPLE_REPLY_MAGIC: Final = 0x67446698
_CHUNK_MAGIC: Final = 0x668E33EF

KNOWN_CLIENT_FLAGS: Final = 0b11
NO_ZEROES: Final = 0b10

MAX_OPTION_BYTES: Final = 16 << 10
"""Of an option's data: a name of at most 4096 bytes, and a few queries."""
MAX_PAYLOAD_BYTES: Final = 32 << 20
"""Of a READ or a WRITE: what proto.md has clients assume, and nbdkit allows by default is twice that."""
MAX_QUERIES: Final = 64
MAX_DESCRIPTORS: Final = 4096
"""Extents in one answer: 32 KiB. A client asks again for the rest."""


class Option(IntEnum):
    """What a client negotiates."""

    EXPORT_NAME = 1
    ABORT = 2
    LIST = 3
    INFO = 6
    GO = 7
    STRUCTURED_REPLY = 8
    LIST_META_CONTEXT = 9
    SET_META_CONTEXT = 10


class OptionReply(IntEnum):
    """Types of answers to options."""

    ACK = 1
    SERVER = 2
    INFO = 3
    META_CONTEXT = 4
    ERR_UNSUP = (1 << 31) + 1
    ERR_INVALID = (1 << 31) + 3
    ERR_UNKNOWN = (1 << 31) + 6
    ERR_TOO_BIG = (1 << 31) + 9


class Info(IntEnum):
    """What INFO and GO tell."""

    EXPORT = 0
    NAME = 1
    DESCRIPTION = 2
    BLOCK_SIZE = 3


class Transmission(IntFlag):
    """What an export can do."""

    HAS_FLAGS = 1
    SEND_FLUSH = 1 << 2
    SEND_FUA = 1 << 3
    SEND_TRIM = 1 << 5
    SEND_WRITE_ZEROES = 1 << 6
    SEND_DF = 1 << 7
    CAN_MULTI_CONN = 1 << 8


SERVED: Final = (
    Transmission.HAS_FLAGS
    | Transmission.SEND_FLUSH
    | Transmission.SEND_FUA
    | Transmission.SEND_TRIM
    | Transmission.SEND_WRITE_ZEROES
    | Transmission.CAN_MULTI_CONN
)
"""Of every volume. DF comes with structured replies. A flush covers what all clients have written: MULTI_CONN."""


class NbdCommand(IntEnum):
    """Commands of requests."""

    READ = 0
    WRITE = 1
    DISC = 2
    FLUSH = 3
    TRIM = 4
    WRITE_ZEROES = 6
    BLOCK_STATUS = 7


class Flag(IntFlag):
    """Flags of requests."""

    FUA = 1
    NO_HOLE = 1 << 1
    DF = 1 << 2
    REQ_ONE = 1 << 3


ALLOWED_FLAGS: Final = {
    NbdCommand.READ: Flag.FUA | Flag.DF,
    NbdCommand.WRITE: Flag.FUA,
    NbdCommand.DISC: Flag.FUA,
    NbdCommand.FLUSH: Flag.FUA,
    NbdCommand.TRIM: Flag.FUA,
    NbdCommand.WRITE_ZEROES: Flag.FUA | Flag.NO_HOLE,
    NbdCommand.BLOCK_STATUS: Flag.FUA | Flag.REQ_ONE,
}
"""Of each command. FUA means nothing to most, and is allowed with all."""

CONTEXT: Final = b"base:allocation"
CONTEXT_ID: Final = 1
_HOLE, _ZERO = 1, 2

DONE: Final = 1
"""Flag of an answer's last chunk."""
_NONE, _OFFSET_DATA, _BLOCK_STATUS, _ERROR = 0, 1, 5, (1 << 15) + 1

ERRORS: Final = frozenset({
    errno.EPERM, errno.EIO, errno.ENOMEM, errno.EINVAL, errno.ENOSPC, errno.EOVERFLOW, errno.ENOTSUP, errno.ESHUTDOWN,
})  # fmt: skip
"""Those that the protocol knows; all others are EIO."""


@dataclass(frozen=True, slots=True)
class WireRequest:
    """The header of a request. `kind` is None for a command that is not served."""

    flags: int
    kind: NbdCommand | None
    cookie: int
    offset: int
    length_bytes: int

    @property
    def has_payload(self) -> bool:
        """Whether data follows."""
        return self.kind is NbdCommand.WRITE


# -- what clients send ------------------------------------------------------------------------------------------


def option_untrusted(header: bytes) -> tuple[int, int]:
    """Return an option's number and the length of its data. Raises NbdError."""
    magic, option, length = OPTION.unpack(header)
    if magic != b"IHAVEOPT":
        raise NbdError("an option without its magic")
    if length > MAX_OPTION_BYTES:
        raise NbdError(f"an option of {length} bytes; at most {MAX_OPTION_BYTES}")
    return option, length


def request_untrusted(header: bytes) -> WireRequest:
    """Return a request's header. Raises NbdError for one after which the next cannot be found."""
    magic, flags, command, cookie, offset, length = REQUEST.unpack(header)
    if magic != _REQUEST_MAGIC:
        raise NbdError("a request without its magic")
    kind = NbdCommand(command) if command in _KINDS else None
    if kind is NbdCommand.WRITE and length > MAX_PAYLOAD_BYTES:
        raise NbdError(f"a write of {length} bytes; at most {MAX_PAYLOAD_BYTES}")
    return WireRequest(flags=flags, kind=kind, cookie=cookie, offset=offset, length_bytes=length)


_KINDS: Final = frozenset(NbdCommand)


class _Reader:
    """Reads fields of an option's data. Raises NbdError where they end too early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, length: int) -> int:
        """Return an integer of `length` bytes."""
        return int.from_bytes(self.take(length))

    def text(self) -> bytes:
        """Return bytes that stand behind their length."""
        return self.take(self.number(4))

    def take(self, length: int) -> bytes:
        """Return the next bytes."""
        taken = self._data[self._at : self._at + length]
        if len(taken) != length:
            raise NbdError("an option that ends too early")
        self._at += length
        return taken

    def end(self) -> None:
        """Raise NbdError unless all has been read."""
        if self._at != len(self._data):
            raise NbdError("an option with bytes behind its end")


def info_untrusted(data: bytes) -> tuple[bytes, list[int]]:
    """Return the name in an INFO or a GO, and what it asks for. Raises NbdError."""
    reader = _Reader(data)
    name = reader.text()
    wanted = [reader.number(2) for _ in range(reader.number(2))]
    reader.end()
    return name, wanted


def contexts_untrusted(data: bytes) -> tuple[bytes, list[bytes]]:
    """Return the name in a LIST_META_CONTEXT or a SET_META_CONTEXT, and its queries. Raises NbdError."""
    reader = _Reader(data)
    name, count = reader.text(), reader.number(4)
    if count > MAX_QUERIES:
        raise NbdError(f"{count} queries of contexts; at most {MAX_QUERIES}")
    queries = [reader.text() for _ in range(count)]
    reader.end()
    return name, queries


# -- what the server sends --------------------------------------------------------------------------------------


def option_reply(option: int, kind: OptionReply, data: bytes = b"") -> bytes:
    """Return an answer to an option."""
    return OPTION_REPLY.pack(_OPTION_REPLY_MAGIC, option, kind, len(data)) + data


def simple_reply(cookie: int, *, error: int = 0) -> bytes:
    """Return a simple reply; the data of a READ follows it."""
    return SIMPLE_REPLY.pack(_SIMPLE_REPLY_MAGIC, error, cookie)


def done_chunk(cookie: int) -> bytes:
    """Return the structured reply that has nothing but an end."""
    return CHUNK.pack(_CHUNK_MAGIC, DONE, _NONE, cookie, 0)


def data_chunk(cookie: int, *, offset: int, length_bytes: int) -> bytes:
    """Return what precedes the data of a READ, all of which is in one chunk."""
    return CHUNK.pack(_CHUNK_MAGIC, DONE, _OFFSET_DATA, cookie, 8 + length_bytes) + offset.to_bytes(8)


def error_chunk(cookie: int, *, error: int, text: str) -> bytes:
    """Return the structured reply of a request that failed."""
    message = text.encode()[:1024]
    payload = struct.pack(">IH", error, len(message)) + message
    return CHUNK.pack(_CHUNK_MAGIC, DONE, _ERROR, cookie, len(payload)) + payload


def status_chunk(cookie: int, extents: Sequence[BlockExtent]) -> bytes:
    """Return the answer to BLOCK_STATUS."""
    payload = b"".join(
        struct.pack(">II", extent.length_bytes, _HOLE * extent.hole | _ZERO * extent.zero) for extent in extents
    )
    header = CHUNK.pack(_CHUNK_MAGIC, DONE, _BLOCK_STATUS, cookie, 4 + len(payload))
    return header + CONTEXT_ID.to_bytes(4) + payload
