"""How a message is marked as a stream's: by the `key` of its SEND, which the protocol carries and does not look at.

Ordinary messages have key 0, and so keep all 32 bits of their immediate. A stream's have:

| field | bits | content |
|---|---|---|
| key | 56 to 63 | the kind |
| key | 0 to 55 | the number of the stream; bit 0: opened by the end that accepted the peer |
| immediate | | low 32 bits of an offset in the stream's bytes |
| payload | | DATA: the bytes from that offset on; else none |
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from srd.errors import PacketError

KIND_SHIFT: Final = 56
_NUMBER: Final = (1 << KIND_SHIFT) - 1
_OFFSET: Final = (1 << 32) - 1
MAX_AHEAD: Final = 1 << 30
"""An offset on the wire is at most so far ahead of what its receiver knows, so that 32 bits are unambiguous."""
BACKLOG: Final = 16
"""Streams that an end may have opened and the other end not accepted yet, as `listen`'s backlog."""
INITIAL_WINDOW_BYTES: Final = 64 << 10
"""Bytes that may be sent before the first LIMIT, that is, before the stream is accepted. The receiver keeps them until
then: 1 MiB for all of a peer's backlog."""
MAX_PIECES: Final = 1024
"""DATA messages from the lowest one that is not acknowledged, so that a receiver has to keep no more out of order."""


class FrameKind(IntEnum):
    """What a message of a stream says."""

    DATA = 1
    """Bytes of the stream, from the offset on."""
    EOF = 2
    """Its sender's bytes end at the offset."""
    LIMIT = 3
    """Bytes up to the offset may be sent. The first one opens the stream, or accepts it."""
    STOP = 4
    """Its sender reads no more: bytes need not be sent. The offset means nothing."""
    RESET = 5
    """Its sender has given the stream up, both ways. The offset means nothing."""


class Frame(NamedTuple):
    """A message of a stream, without its payload."""

    kind: FrameKind
    stream: int
    offset: int
    """Its low 32 bits."""


def key(kind: FrameKind, *, stream: int) -> int:
    """Return the key of a stream's message."""
    return kind << KIND_SHIFT | stream


def low_bits(offset: int) -> int:
    """Return what the immediate carries of an offset."""
    return offset & _OFFSET


def ahead(offset: int, *, of: int) -> int:
    """Return how far the low bits of an offset are ahead of an offset, modulo 2^32."""
    return (offset - of) & _OFFSET


def frame_untrusted(message_key: int, *, immediate: int | None, length: int) -> Frame:
    """Decode a message whose key is not 0. Raises PacketError."""
    number = message_key >> KIND_SHIFT
    try:
        kind = FrameKind(number)
    except ValueError:
        raise PacketError(f"a message of kind {number}, which does not exist") from None
    if immediate is None:
        raise PacketError(f"a stream's {kind.name} without an offset")
    if (kind is FrameKind.DATA) != (length > 0):
        raise PacketError(f"a stream's {kind.name} with {length} bytes")
    return Frame(kind, message_key & _NUMBER, immediate)
