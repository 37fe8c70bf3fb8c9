"""The byte layout of control packets. With `wire.data` the implementation of `srd/PROTOCOL.md`.

A control packet is the common prefix (see `wire.data`) and a body. Each is a frozen dataclass with `encode`; the
way back is `decode_untrusted`, which raises `PacketError` and nothing else.

When you add a packet type: `PacketType`, a dataclass, `Control`, `_DECODERS`, PROTOCOL.md, the table in the tests.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from srd.proto.errors import PacketError
from srd.proto.wire.data import MAX_DATAGRAM_BYTES, MIN_DATAGRAM_BYTES, PREFIX_BYTES, VERSION, Address, PacketType


@dataclass(frozen=True, slots=True)
class Datagram:
    """One control packet to send from local path `path`."""

    address: Address
    path: int
    data: bytes


MAX_COOKIE_BYTES = 64
"""Any cookie must fit into the smallest HELLO."""
MIN_PEER_WINDOW_PACKETS = 64
"""Least window of PSNs that an endpoint may have: a burst."""
_PREFIX = struct.Struct(">BBBBIQ")


def _prefix(kind: PacketType, *, context: int, path: int = 0, path_sequence: int = 0) -> bytes:
    return _PREFIX.pack(VERSION, kind, 0, path, path_sequence & 0xFFFFFFFF, context)


class PathReport(NamedTuple):
    """What the receiver says of one path it heard from since its last reports.

    A tuple, as several come with every ack: a frozen dataclass takes four times as long to make.
    """

    path: int
    path_sequence: int
    """Highest path sequence heard, low 32 bits."""
    sent_us: int
    """Transmit time of that packet, echoed."""
    ack_delay_us: int
    """From the kernel's receipt of that packet to the sending of this report: the endpoint's own delay."""
    packets: int
    """Packets heard on this path so far, low 32 bits."""
    duplicates: int
    """Of these, how many carried what had been received before, low 16 bits."""
    ecn_ce: int = 0
    """Of these, how many bore a congestion mark (CE), low 16 bits."""


_REPORT = struct.Struct(">BxxxIIIIHH")
_ACK = struct.Struct(">QQQHBBBxxx")
NOT_READY = 1
"""Flag of an ack: packets were dropped since the last one because there was no memory for them."""


def max_reports(room_bytes: int) -> int:
    """Return how many path reports an ack of at most `room_bytes` may have: they get up to half of its body."""
    return max((room_bytes - PREFIX_BYTES - _ACK.size) // 2 // _REPORT.size, 1)


def ack_bytes(bitmap: int, *, reports: int) -> int:
    """Return how long an ack is."""
    return PREFIX_BYTES + _ACK.size + reports * _REPORT.size + (bitmap.bit_length() + 7) // 8


def bitmap_room_bytes(room_bytes: int, *, reports: int) -> int:
    """Return what is left for the bitmap of an ack of at most `room_bytes` with so many reports."""
    return room_bytes - PREFIX_BYTES - _ACK.size - reports * _REPORT.size


@dataclass(frozen=True, slots=True)
class Ack:
    """Everything received from the peer: all PSNs below `cumulative`, and those of the bitmap."""

    context: int
    cumulative: int
    bitmap: int
    """Bit i stands for PSN cumulative + i; bit 0 is always clear."""
    credit_bytes: int
    """Message bytes the peer may start, counted from the beginning of its life."""
    credit_messages: int
    """Messages it may start, counted likewise."""
    reports: tuple[PathReport, ...]
    flags: int = 0
    """NOT_READY, or nothing."""
    path: int = 0
    """Of its sender, that it is sent over."""
    remote_path: int = 0
    """Path of its receiver that it is sent to. Both together are its way."""

    def encode(self) -> bytes:
        """Return the packet."""
        bitmap = self.bitmap.to_bytes((self.bitmap.bit_length() + 7) // 8, "little")
        lengths = (len(bitmap), len(self.reports))
        credit = (self.credit_bytes, self.credit_messages)
        head = _ACK.pack(self.cumulative, *credit, *lengths, self.flags, self.remote_path)
        body = b"".join(_REPORT.pack(*report) for report in self.reports)
        return _prefix(PacketType.ACK, context=self.context, path=self.path) + head + body + bitmap


_HELLO = struct.Struct(">QQIIIHBB")


@dataclass(frozen=True, slots=True)
class Hello:
    """Opens a peer. Padded to `datagram_bytes`, so that it also tries whether the network carries that size."""

    own_context: int
    credit_bytes: int
    credit_messages: int
    max_message_bytes: int
    """Longest message that the sender of this packet takes."""
    window_packets: int
    """PSNs from the lowest one missing that the sender of this packet takes."""
    datagram_bytes: int
    cookie: bytes = b""
    path: int = 0
    """That it is sent over; its answers say the same."""

    def encode(self) -> bytes:
        """Return the packet, padded with zeros."""
        credit = (self.credit_bytes, self.credit_messages)
        limits = (self.max_message_bytes, self.window_packets, self.datagram_bytes)
        body = _HELLO.pack(self.own_context, *credit, *limits, len(self.cookie), 0)
        prefix = _prefix(PacketType.HELLO, context=0, path=self.path)
        return (prefix + body + self.cookie).ljust(self.datagram_bytes, b"\0")


@dataclass(frozen=True, slots=True)
class Retry:
    """Asks for the Hello again, with this cookie; nothing has been stored. As long as the Hello: that passes back."""

    context: int
    cookie: bytes
    path: int = 0
    """That the Hello was sent over, by its own word."""
    size_bytes: int = 0
    """Of the whole packet; if that is too little for the cookie, as long as that takes."""

    def encode(self) -> bytes:
        """Return the packet, padded with zeros."""
        prefix = _prefix(PacketType.RETRY, context=self.context, path=self.path)
        return (prefix + bytes([len(self.cookie)]) + self.cookie).ljust(self.size_bytes, b"\0")


_ACCEPT = struct.Struct(">QQIIIH")


@dataclass(frozen=True, slots=True)
class Accept:
    """The peer exists. `datagram_bytes` is what both ends will use."""

    context: int
    own_context: int
    credit_bytes: int
    credit_messages: int
    max_message_bytes: int
    window_packets: int
    datagram_bytes: int

    def encode(self) -> bytes:
        """Return the packet."""
        credit = (self.credit_bytes, self.credit_messages)
        limits = (self.max_message_bytes, self.window_packets, self.datagram_bytes)
        return _prefix(PacketType.ACCEPT, context=self.context) + _ACCEPT.pack(self.own_context, *credit, *limits)


_PROBE = struct.Struct(">QIBB")
NO_PATH = 255
"""A path's number where there is none to tell."""
NO_ACK_PATH = (NO_PATH, NO_PATH)
"""There and back over paths that nobody names."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Asks for an Ack with a report of this path; padded, so that it also tries whether the path carries that size."""

    context: int
    own_context: int
    """Its sender's, to which a RESET is addressed."""
    path: int
    path_sequence: int
    sent_us: int
    ack_path: int = NO_PATH
    ack_remote_path: int = NO_PATH
    """Way of the last Ack that arrived (see there)."""
    size_bytes: int = PREFIX_BYTES + _PROBE.size
    """Of the whole packet."""

    def encode(self) -> bytes:
        """Return the packet, padded with zeros."""
        prefix = _prefix(PacketType.PROBE, context=self.context, path=self.path, path_sequence=self.path_sequence)
        body = _PROBE.pack(self.own_context, self.sent_us, self.ack_path, self.ack_remote_path)
        return (prefix + body).ljust(self.size_bytes, b"\0")


@dataclass(frozen=True, slots=True)
class Refuse:
    """The peer will not be opened; `status` says why."""

    context: int
    status: int

    def encode(self) -> bytes:
        """Return the packet."""
        return _prefix(PacketType.REFUSE, context=self.context) + bytes([self.status])


_CONTEXT = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Close:
    """The sender of this packet is done with the peer. It names both contexts, as all do that end a peer."""

    context: int
    own_context: int
    """Its sender's."""

    def encode(self) -> bytes:
        """Return the packet."""
        return _prefix(PacketType.CLOSE, context=self.context) + _CONTEXT.pack(self.own_context)


@dataclass(frozen=True, slots=True)
class Closed:
    """Answers Close, whose two contexts it has the other way round: nothing of the peer need be known any more."""

    context: int
    own_context: int

    def encode(self) -> bytes:
        """Return the packet."""
        return _prefix(PacketType.CLOSED, context=self.context) + _CONTEXT.pack(self.own_context)


@dataclass(frozen=True, slots=True)
class Reset:
    """The receiver of a Probe knows no such context. It has the Probe's two contexts the other way round."""

    context: int
    own_context: int
    """The one that is not known."""

    def encode(self) -> bytes:
        """Return the packet."""
        return _prefix(PacketType.RESET, context=self.context) + _CONTEXT.pack(self.own_context)


_NACK = struct.Struct(">IB")


@dataclass(frozen=True, slots=True)
class Nack:
    """A message was refused: none of it will be acknowledged, but as VOID."""

    context: int
    message: int
    """Low 32 bits of its number."""
    status: int
    """Why, as a completion status of the requester."""

    def encode(self) -> bytes:
        """Return the packet."""
        return _prefix(PacketType.NACK, context=self.context) + _NACK.pack(self.message, self.status)


_CHALLENGE = struct.Struct(">QB")


@dataclass(frozen=True, slots=True)
class PathChallenge:
    """Asks whether its receiver receives at the address that packets of one of its paths come from."""

    context: int
    token: int
    """To be returned over that path."""
    remote_path: int
    """That path of the receiver."""

    def encode(self) -> bytes:
        """Return the packet."""
        prefix = _prefix(PacketType.PATH_CHALLENGE, context=self.context)
        return prefix + _CHALLENGE.pack(self.token, self.remote_path)


@dataclass(frozen=True, slots=True)
class PathResponse:
    """Returns the token of a PathChallenge, over the path that it was sent to."""

    context: int
    token: int
    path: int

    def encode(self) -> bytes:
        """Return the packet."""
        prefix = _prefix(PacketType.PATH_RESPONSE, context=self.context, path=self.path)
        return prefix + _CONTEXT.pack(self.token)


Control = Ack | Hello | Retry | Accept | Probe | Refuse | Close | Closed | Reset | Nack | PathChallenge | PathResponse


def decode_untrusted(data: bytes) -> Control:
    """Read a control packet. Raises PacketError, and nothing else, whatever the bytes are."""
    if len(data) < PREFIX_BYTES:
        raise PacketError(f"{len(data)} bytes are no packet: the shortest has {PREFIX_BYTES}")
    version, kind, _, path, path_sequence, context = _PREFIX.unpack_from(data)
    if version != VERSION and kind != PacketType.REFUSE:
        raise PacketError(f"version {version} is not {VERSION}")
    decode = _DECODERS.get(kind)
    if decode is None:
        raise PacketError(f"packet type {kind} is no control packet")
    try:
        return decode(context, path, path_sequence, data[PREFIX_BYTES:])
    except (struct.error, IndexError) as error:
        raise PacketError(f"packet type {kind} of {len(data)} bytes is cut short") from error


def foreign_hello_untrusted(data: bytes) -> int | None:
    """Return the initiator's context if this is a HELLO of another version; it lies at the same place in all."""
    if len(data) < MIN_DATAGRAM_BYTES or data[0] == VERSION or data[1] != PacketType.HELLO:
        return None
    return int.from_bytes(data[PREFIX_BYTES : PREFIX_BYTES + 8], "big")


def _decode_ack(context: int, path: int, _path_sequence: int, body: bytes) -> Ack:
    cumulative, credit_bytes, credit_messages, bitmap_bytes, report_count, flags, remote_path = _ACK.unpack_from(body)
    at = _ACK.size + report_count * _REPORT.size
    reports = tuple(map(PathReport._make, _REPORT.iter_unpack(body[_ACK.size : at])))
    if len(body) != at + bitmap_bytes:
        raise PacketError(f"an ack with {bitmap_bytes} bytes of bitmap has {len(body) - at}")
    bitmap = int.from_bytes(body[at:], "little")
    if bitmap & 1:
        raise PacketError("an ack's bitmap names its cumulative point as received")
    return Ack(context, cumulative, bitmap, credit_bytes, credit_messages, reports, flags, path, remote_path)


def _decode_hello(_context: int, path: int, _path_sequence: int, body: bytes) -> Hello:
    own_context, credit_bytes, credit_messages, *rest = _HELLO.unpack_from(body)
    max_message, window_packets, datagram_bytes, cookie_bytes, _ = rest
    cookie = body[_HELLO.size : _HELLO.size + cookie_bytes]
    if len(body) + PREFIX_BYTES != datagram_bytes or len(cookie) != cookie_bytes:
        raise PacketError(f"a hello for {datagram_bytes} bytes has {len(body) + PREFIX_BYTES}")
    if datagram_bytes < MIN_DATAGRAM_BYTES:
        raise PacketError(f"a hello for {datagram_bytes} bytes asks for less than {MIN_DATAGRAM_BYTES}")
    _check_window(window_packets)
    limits = (max_message, window_packets, datagram_bytes)
    return Hello(own_context, credit_bytes, credit_messages, *limits, cookie, path)


def _check_window(window_packets: int) -> None:
    if window_packets < MIN_PEER_WINDOW_PACKETS:
        raise PacketError(f"a window of {window_packets} packets is less than {MIN_PEER_WINDOW_PACKETS}")


def _decode_retry(context: int, path: int, _path_sequence: int, body: bytes) -> Retry:
    cookie_bytes = body[0]
    if cookie_bytes > MAX_COOKIE_BYTES:
        raise PacketError(f"a cookie of {cookie_bytes} bytes is longer than {MAX_COOKIE_BYTES}")
    if len(body) <= cookie_bytes:
        raise PacketError(f"a cookie of {cookie_bytes} bytes has {len(body) - 1}")
    return Retry(context, body[1 : 1 + cookie_bytes], path, PREFIX_BYTES + len(body))


def _decode_accept(context: int, _path: int, _path_sequence: int, body: bytes) -> Accept:
    own_context, credit_bytes, credit_messages, *rest = _ACCEPT.unpack_from(body)
    max_message_bytes, window_packets, datagram_bytes = rest
    if not MIN_DATAGRAM_BYTES <= datagram_bytes <= MAX_DATAGRAM_BYTES:
        raise PacketError(f"an accept for {datagram_bytes} bytes is out of range")
    _check_window(window_packets)
    limits = (max_message_bytes, window_packets, datagram_bytes)
    return Accept(context, own_context, credit_bytes, credit_messages, *limits)


def _decode_probe(context: int, path: int, path_sequence: int, body: bytes) -> Probe:
    own_context, sent_us, ack_path, ack_towards = _PROBE.unpack_from(body)
    return Probe(context, own_context, path, path_sequence, sent_us, ack_path, ack_towards, PREFIX_BYTES + len(body))


_DECODERS: dict[int, Callable[[int, int, int, bytes], Control]] = {
    PacketType.ACK: _decode_ack,
    PacketType.HELLO: _decode_hello,
    PacketType.RETRY: _decode_retry,
    PacketType.ACCEPT: _decode_accept,
    PacketType.REFUSE: lambda context, _path, _sequence, body: Refuse(context, body[0]),
    PacketType.PROBE: _decode_probe,
    PacketType.CLOSE: lambda context, _path, _sequence, body: Close(context, *_CONTEXT.unpack_from(body)),
    PacketType.CLOSED: lambda context, _path, _sequence, body: Closed(context, *_CONTEXT.unpack_from(body)),
    PacketType.RESET: lambda context, _path, _sequence, body: Reset(context, *_CONTEXT.unpack_from(body)),
    PacketType.PATH_CHALLENGE: lambda context, _path, _sequence, body: PathChallenge(
        context, *_CHALLENGE.unpack_from(body)
    ),
    PacketType.PATH_RESPONSE: lambda context, path, _sequence, body: PathResponse(
        context, _CONTEXT.unpack_from(body)[0], path
    ),
    PacketType.NACK: lambda context, _path, _sequence, body: Nack(context, *_NACK.unpack_from(body)),
}
