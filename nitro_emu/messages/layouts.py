"""What two programs say to each other: SENDs that begin with a byte that says what they are. Network byte order.

    client                                            server
    HELLO qkey, nonce, window          ------>        at its listening queue pair
                                       <------        WELCOME nonce, qkey, window     from a queue pair of its own
                                       <------        REFUSE nonce, reason            or instead of it

From then on each sends to the other's queue pair, and takes nothing from any other:

    DATA flags, immediate, payload     a message that fits into a packet
    WRITTEN flags, slot, immediate, length   and a WRITE of so many bytes to the slot of the receiver's window, with the
                                       slot's number as its immediate; both may arrive first: a longer message
    CREDIT slot                        the receiver has released the message in its slot
    PING, PONG                         asks for a sign of life, and gives it
    CLOSE                              the last: everything before it has been delivered

A window is memory that the other end may write to: slots of equal size, each of which holds one message.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from nitro_emu.errors import NitroError

VERSION: Final = 1
MAX_SLOTS: Final = 1 << 10
MAX_SLOT_BYTES: Final = 1 << 30
MIN_PACKET_BYTES: Final = 512
"""Longer than everything here but messages."""
NONCE_BYTES: Final = 16
MAX_REASON_BYTES: Final = 400

_HAS_IMMEDIATE: Final = 1
_WINDOW: Final = struct.Struct("!IQHII")
_HELLO: Final = struct.Struct(f"!BHI{NONCE_BYTES}s")
_WELCOME: Final = struct.Struct(f"!B{NONCE_BYTES}sI")
_REFUSE: Final = struct.Struct(f"!B{NONCE_BYTES}s")
_DATA: Final = struct.Struct("!BBI")
_WRITTEN: Final = struct.Struct("!BBHII")
_CREDIT: Final = struct.Struct("!BH")
DATA_BYTES: Final = _DATA.size
"""Of a packet, before the payload of a short message."""


class MessageError(NitroError):
    """What another program has sent makes no sense."""


class Kind(IntEnum):
    """The first byte."""

    HELLO = 1
    WELCOME = 2
    REFUSE = 3
    DATA = 4
    WRITTEN = 5
    CREDIT = 6
    PING = 7
    PONG = 8
    CLOSE = 9


@dataclass(frozen=True, slots=True)
class Window:
    """Memory that the other end may write long messages to."""

    rkey: int
    address: int
    slots: int
    slot_bytes: int
    packet_bytes: int
    """Not of the window: the longest SEND that the other end may send here."""


@dataclass(frozen=True, slots=True)
class Hello:
    """A client asks for a connection."""

    version: int
    qkey: int
    """Of the client's queue pair."""
    nonce: bytes
    """Random; the answer repeats it."""
    window: Window


@dataclass(frozen=True, slots=True)
class Welcome:
    """A server has a queue pair for the client: the one that this comes from."""

    nonce: bytes
    qkey: int
    window: Window


@dataclass(frozen=True, slots=True)
class Refuse:
    """A server has none."""

    nonce: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class Written:
    """Describes a long message."""

    slot: int
    length: int
    immediate: int | None


def pack_hello(hello: Hello) -> bytes:
    """Return a HELLO."""
    return _HELLO.pack(Kind.HELLO, hello.version, hello.qkey, hello.nonce) + _pack_window(hello.window)


def pack_welcome(welcome: Welcome) -> bytes:
    """Return a WELCOME."""
    return _WELCOME.pack(Kind.WELCOME, welcome.nonce, welcome.qkey) + _pack_window(welcome.window)


def pack_refuse(refuse: Refuse) -> bytes:
    """Return a REFUSE."""
    return _REFUSE.pack(Kind.REFUSE, refuse.nonce) + refuse.reason.encode(errors="replace")[:MAX_REASON_BYTES]


def pack_data_header(immediate: int | None) -> bytes:
    """Return what comes before the payload of a short message."""
    return _DATA.pack(Kind.DATA, 0 if immediate is None else _HAS_IMMEDIATE, immediate or 0)


def pack_written(written: Written) -> bytes:
    """Return a WRITTEN."""
    flags = 0 if written.immediate is None else _HAS_IMMEDIATE
    return _WRITTEN.pack(Kind.WRITTEN, flags, written.slot, written.immediate or 0, written.length)


def pack_credit(slot: int) -> bytes:
    """Return a CREDIT."""
    return _CREDIT.pack(Kind.CREDIT, slot)


def _pack_window(window: Window) -> bytes:
    return _WINDOW.pack(window.rkey, window.address, window.slots, window.slot_bytes, window.packet_bytes)


# -- what others send: MessageError, and nothing else ---------------------------------------------------------------


def kind_untrusted(packet: memoryview) -> Kind:
    """Return what a packet is. Raises MessageError."""
    try:
        return Kind(packet[0])
    except (IndexError, ValueError):
        raise MessageError("a packet of an unknown kind") from None


def hello_untrusted(packet: memoryview) -> Hello:
    """Return a HELLO. One of another version has no valid window. Raises MessageError."""
    _, version, qkey, nonce = _unpack_untrusted(_HELLO, packet, Kind.HELLO)
    if version != VERSION:
        return Hello(version, qkey, nonce, Window(0, 0, 0, 0, 0))
    return Hello(version, qkey, nonce, _window_untrusted(packet[_HELLO.size :]))


def welcome_untrusted(packet: memoryview) -> Welcome:
    """Return a WELCOME. Raises MessageError."""
    _, nonce, qkey = _unpack_untrusted(_WELCOME, packet, Kind.WELCOME)
    return Welcome(nonce, qkey, _window_untrusted(packet[_WELCOME.size :]))


def refuse_untrusted(packet: memoryview) -> Refuse:
    """Return a REFUSE. Raises MessageError."""
    _, nonce = _unpack_untrusted(_REFUSE, packet, Kind.REFUSE)
    reason = bytes(packet[_REFUSE.size : _REFUSE.size + MAX_REASON_BYTES])
    return Refuse(nonce, reason.decode(errors="replace"))


def data_immediate_untrusted(packet: memoryview) -> int | None:
    """Return the immediate of a DATA, whose payload follows `DATA_BYTES`. Raises MessageError."""
    _, flags, immediate = _unpack_untrusted(_DATA, packet, Kind.DATA)
    return immediate if flags & _HAS_IMMEDIATE else None


def written_untrusted(packet: memoryview) -> Written:
    """Return a WRITTEN. Raises MessageError."""
    _, flags, slot, immediate, length = _unpack_untrusted(_WRITTEN, packet, Kind.WRITTEN)
    return Written(slot, length, immediate if flags & _HAS_IMMEDIATE else None)


def credit_untrusted(packet: memoryview) -> int:
    """Return the slot of a CREDIT. Raises MessageError."""
    _, slot = _unpack_untrusted(_CREDIT, packet, Kind.CREDIT)
    return int(slot)


def _unpack_untrusted(layout: struct.Struct, packet: memoryview, kind: Kind) -> tuple[Any, ...]:
    if len(packet) < layout.size or packet[0] != kind:
        raise MessageError(f"no {kind.name}, or one of {len(packet)} bytes, which has {layout.size}")
    return layout.unpack_from(packet)


def _window_untrusted(packet: memoryview) -> Window:
    if len(packet) < _WINDOW.size:
        raise MessageError("a window that is cut off")
    window = Window(*_WINDOW.unpack_from(packet))
    if not 0 < window.slots <= MAX_SLOTS or not 0 < window.slot_bytes <= MAX_SLOT_BYTES:
        raise MessageError(f"a window of {window.slots} slots of {window.slot_bytes} bytes")
    if window.packet_bytes < MIN_PACKET_BYTES:
        raise MessageError(f"packets of at most {window.packet_bytes} bytes")
    if window.address + window.slots * window.slot_bytes > 1 << 64:
        raise MessageError("a window beyond the end of memory")
    return window
