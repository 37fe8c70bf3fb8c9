"""The byte layout of control packets. With `wire.data` it implements `srd/PROTOCOL.md`.

A control packet is the common prefix (see `wire.data`) and a body. Each is an immutable class with `encode`: a frozen
dataclass, or, where there is one for every few data packets, a named tuple, which is made in a tenth of the time.
`decode_untrusted` is the inverse; it raises `PacketError` and nothing else.

To add a packet type, change `PacketType`, add a dataclass, and change `Control`, `_DECODERS`, PROTOCOL.md and the table
in the tests.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from srd.proto.errors import PacketError
from srd.proto.security import MAX_CREDENTIAL_BYTES
from srd.proto.wire.data import MAX_DATAGRAM_BYTES, MIN_DATAGRAM_BYTES, PREFIX_BYTES, VERSION, Address, PacketType


class Datagram(NamedTuple):
    """One control packet to send from the port of local path `path`."""

    address: Address
    path: int
    data: bytes


MAX_COOKIE_BYTES: Final = 64
"""Longest cookie: any cookie must fit into the smallest HELLO."""
MIN_PEER_WINDOW_PACKETS: Final = 64
"""Smallest window of PSNs that an endpoint may have: a segment train."""
_PREFIX: Final = struct.Struct(">BBBBIQ")


def _prefix(kind: PacketType, *, context: int, path: int = 0, path_sequence: int = 0) -> bytes:
    return _PREFIX.pack(VERSION, kind, 0, path, path_sequence & 0xFFFFFFFF, context)


class PathReport(NamedTuple):
    """What the receiver reports of one path on which packets arrived since its last report."""

    path: int
    path_sequence: int
    """Highest path sequence received, low 32 bits."""
    sent_us: int
    """`sent_us` of that packet, echoed."""
    ack_delay_us: int
    """From the kernel's receipt of that packet to the making of this report: the ack delay of the host."""
    packets: int
    """Packets received on this path so far, low 32 bits."""
    duplicates: int
    """Of these, packets received before, low 16 bits."""
    ecn_ce: int = 0
    """Of these, packets with a congestion mark (CE), low 16 bits."""
    received_us: int = 0
    """When the kernel received that packet: the receiver's clock in microseconds, low 32 bits."""


_REPORT: Final = struct.Struct(">BxxxIIIIHHI")
_ACK: Final = struct.Struct(">QQQHBBBxxx")
NOT_READY: Final = 1
"""Flag of an ack: packets were dropped since the last ack for lack of memory."""


def max_reports(room_bytes: int) -> int:
    """Return how many path reports an ack of at most `room_bytes` may have: they get up to half of its body."""
    return max((room_bytes - PREFIX_BYTES - _ACK.size) // 2 // _REPORT.size, 1)


def ack_bytes(bitmap: int, *, reports: int) -> int:
    """Return how long an ack is."""
    return PREFIX_BYTES + _ACK.size + reports * _REPORT.size + (bitmap.bit_length() + 7) // 8


def bitmap_room_bytes(room_bytes: int, *, reports: int) -> int:
    """Return the room for the bitmap in an ack of at most `room_bytes` with so many reports."""
    return room_bytes - PREFIX_BYTES - _ACK.size - reports * _REPORT.size


class Ack(NamedTuple):
    """Everything received from the peer: all PSNs below `cumulative`, and those of the bitmap."""

    context: int
    cumulative: int
    bitmap: int
    """Bit i stands for PSN cumulative + i; bit 0 is always clear."""
    credit_bytes: int
    """Message bytes that the peer may start, counted from its opening."""
    credit_messages: int
    """Messages that the peer may start, counted likewise."""
    reports: tuple[PathReport, ...]
    flags: int = 0
    """NOT_READY, or 0."""
    path: int = 0
    """Path of the ack's sender that it is sent over."""
    remote_path: int = 0
    """Path of the ack's receiver that it is sent to. The two paths together are the ack path."""

    def encode(self) -> bytes:
        """Return the packet."""
        bitmap = self.bitmap.to_bytes((self.bitmap.bit_length() + 7) // 8, "little")
        lengths = (len(bitmap), len(self.reports))
        credit = (self.credit_bytes, self.credit_messages)
        head = _ACK.pack(self.cumulative, *credit, *lengths, self.flags, self.remote_path)
        body = b"".join(_REPORT.pack(*report) for report in self.reports)
        return _prefix(PacketType.ACK, context=self.context, path=self.path) + head + body + bitmap


_HELLO: Final = struct.Struct(">QQIIIHBBQB")
_LENGTH: Final = struct.Struct(">H")


@dataclass(frozen=True, slots=True)
class Hello:
    """Opens a peer. Padded to `datagram_bytes`, so that it also tests whether the network carries that size."""

    own_context: int
    credit_bytes: int
    credit_messages: int
    max_message_bytes: int
    """Longest message that the sender of this packet takes."""
    window_packets: int
    """PSNs, from the lowest one missing, that the sender of this packet takes."""
    datagram_bytes: int
    cookie: bytes = b""
    path: int = 0
    """Path that it is sent over; the answers repeat it."""
    security: int = 0
    """A `SecurityMode`."""
    message: bytes = b""
    """Unless that is PLAIN: the handshake message, once there is a cookie."""
    source_digest: int = 0
    """Of the address that it is sent from, as its sender knows it (see `handshake.source_digest`); 0: unknown."""
    paths: int = 1
    """Primary paths of its sender."""

    @property
    def transcript(self) -> bytes:
        """What the handshake message is bound to: the packet up to the cookie."""
        credit = (self.credit_bytes, self.credit_messages)
        limits = (self.max_message_bytes, self.window_packets, self.datagram_bytes)
        source = (self.source_digest, self.paths)
        body = _HELLO.pack(self.own_context, *credit, *limits, len(self.cookie), self.security, *source)
        return _prefix(PacketType.HELLO, context=0, path=self.path) + body + self.cookie

    def encode(self) -> bytes:
        """Return the packet, padded with zeros."""
        packet = self.transcript
        if self.security:
            packet += _LENGTH.pack(len(self.message)) + self.message
        return packet.ljust(self.datagram_bytes, b"\0")


@dataclass(frozen=True, slots=True)
class Retry:
    """Requests the HELLO again, with this cookie; no state is kept. Padded as the HELLO, to test the return path."""

    context: int
    cookie: bytes
    path: int = 0
    """Path of the HELLO, as the HELLO gave it."""
    size_bytes: int = 0
    """Size of the whole packet; if that is less than the content needs, as long as needed."""
    credential: bytes = b""
    """The responder's public key or certificate; empty in plain text."""

    def encode(self) -> bytes:
        """Return the packet, padded with zeros."""
        prefix = _prefix(PacketType.RETRY, context=self.context, path=self.path)
        body = bytes([len(self.cookie)]) + self.cookie + _LENGTH.pack(len(self.credential)) + self.credential
        return (prefix + body).ljust(self.size_bytes, b"\0")


_ACCEPT: Final = struct.Struct(">QQIIIHB")


@dataclass(frozen=True, slots=True)
class Accept:
    """The peer exists. `datagram_bytes` is the size that both ends use."""

    context: int
    own_context: int
    credit_bytes: int
    credit_messages: int
    max_message_bytes: int
    window_packets: int
    datagram_bytes: int
    behind_nat: int = 0
    """1: the HELLO came from another address than its sender knows: a NAT is on the way; else 0."""

    def encode(self) -> bytes:
        """Return the packet."""
        return _prefix(PacketType.ACCEPT, context=self.context) + self.body

    @property
    def body(self) -> bytes:
        """What follows the prefix; the payload of the responder's handshake message."""
        credit = (self.credit_bytes, self.credit_messages)
        limits = (self.max_message_bytes, self.window_packets, self.datagram_bytes)
        return _ACCEPT.pack(self.own_context, *credit, *limits, self.behind_nat)


@dataclass(frozen=True, slots=True)
class SecureAccept:
    """The responder's handshake message, in which an ACCEPT's body is encrypted."""

    context: int
    message: bytes

    def encode(self) -> bytes:
        """Return the packet."""
        return _prefix(PacketType.SECURE_ACCEPT, context=self.context) + self.message


class Protected(NamedTuple):
    """A control packet that is encrypted: only the `PacketProtection` of its context makes and opens it."""

    context: int
    data: bytes
    """The whole packet."""

    def encode(self) -> bytes:
        """Return the packet."""
        return self.data


_PROBE: Final = struct.Struct(">QIBB")
NO_PATH: Final = 255
"""The path number that stands for no path."""
NO_ACK_PATH: Final = (NO_PATH, NO_PATH)
"""The ack path before any ack has arrived."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Requests an ACK with a report of this path; padding tests whether the path carries that size."""

    context: int
    own_context: int
    """The sender's context, to which a RESET is addressed."""
    path: int
    path_sequence: int
    sent_us: int
    ack_path: int = NO_PATH
    ack_remote_path: int = NO_PATH
    """With `ack_path` an ack path that ACKs arrive over (see `Ack` and `paths.way_back`)."""
    size_bytes: int = PREFIX_BYTES + _PROBE.size
    """Size of the whole packet."""

    def encode(self) -> bytes:
        """Return the packet, padded with zeros."""
        prefix = _prefix(PacketType.PROBE, context=self.context, path=self.path, path_sequence=self.path_sequence)
        body = _PROBE.pack(self.own_context, self.sent_us, self.ack_path, self.ack_remote_path)
        return (prefix + body).ljust(self.size_bytes, b"\0")


class RefuseReason(IntEnum):
    """Why a peer is refused, beside the status."""

    NONE = 0
    NEEDS_PLAIN = 1
    """The responder's `SecurityMode`, plus one, where the modes differ."""
    NEEDS_PSK = 2
    NEEDS_KEYS = 3
    NEEDS_CERT = 4
    TOO_SMALL = 254
    """The datagram size that the initiator proposes has no room for the responder's certificate."""
    NOT_AUTHORIZED = 255
    """The responder does not accept the initiator's key or certificate."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The peer will not be opened; `status` is the reason."""

    context: int
    status: int
    reason: int = RefuseReason.NONE
    """A `RefuseReason`, or a number that this end does not know."""

    def encode(self) -> bytes:
        """Return the packet."""
        return _prefix(PacketType.REFUSE, context=self.context) + bytes([self.status, self.reason])


_CONTEXT: Final = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Close:
    """Closes the peer. It carries both contexts, as all packets do that end a peer."""

    context: int
    own_context: int
    """The sender's."""

    def encode(self) -> bytes:
        """Return the packet."""
        return _prefix(PacketType.CLOSE, context=self.context) + _CONTEXT.pack(self.own_context)


@dataclass(frozen=True, slots=True)
class Closed:
    """Answers CLOSE, with its two contexts exchanged: this end keeps no state of the peer."""

    context: int
    own_context: int

    def encode(self) -> bytes:
        """Return the packet."""
        return _prefix(PacketType.CLOSED, context=self.context) + _CONTEXT.pack(self.own_context)


@dataclass(frozen=True, slots=True)
class Reset:
    """Answers a packet for an unknown context: in plain text a PROBE, with its two contexts exchanged.

    Else any protected packet, whose sender's context is not known: `context` is 0, and the token shows who answers.
    """

    context: int
    own_context: int
    """The unknown one."""
    token: bytes = b""

    def encode(self) -> bytes:
        """Return the packet."""
        return _prefix(PacketType.RESET, context=self.context) + _CONTEXT.pack(self.own_context) + self.token


_NACK: Final = struct.Struct(">IB")


@dataclass(frozen=True, slots=True)
class Nack:
    """A message is refused: none of it will be acknowledged, except as ABORTED."""

    context: int
    message: int
    """Low 32 bits of its number."""
    status: int
    """Reason, as a completion status of the requester."""

    def encode(self) -> bytes:
        """Return the packet."""
        return _prefix(PacketType.NACK, context=self.context) + _NACK.pack(self.message, self.status)


_CHALLENGE: Final = struct.Struct(">QB")


@dataclass(frozen=True, slots=True)
class PathChallenge:
    """Tests whether its receiver receives at the address that packets of one of its paths come from."""

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
    """Returns the token of a PATH_CHALLENGE, over the path that it was sent to."""

    context: int
    token: int
    path: int

    def encode(self) -> bytes:
        """Return the packet."""
        prefix = _prefix(PacketType.PATH_RESPONSE, context=self.context, path=self.path)
        return prefix + _CONTEXT.pack(self.token)


_PULL_REQUEST: Final = struct.Struct(">QQQ")
_PULL: Final = struct.Struct(">QQI")
NO_LIMIT_BYTES: Final = (1 << 64) - 1
"""The `limit_bytes` of a PULL that stands for no limit."""
ANY_BYTES: Final = (1 << 32) - 1
"""The `unsolicited_bytes` of a PULL that stands for no limit."""


@dataclass(frozen=True, slots=True)
class PullRequest:
    """Asks for a PULL: its sender has data, and may not send it. Counts data packets with their headers."""

    context: int
    sent_bytes: int
    """What its sender has sent in all, retransmissions too."""
    backlog_bytes: int
    """What it would send now."""
    number: int
    """Of the last PULL that it has received; 0: none."""
    path: int = 0

    def encode(self) -> bytes:
        """Return the packet."""
        prefix = _prefix(PacketType.PULL_REQUEST, context=self.context, path=self.path)
        return prefix + _PULL_REQUEST.pack(self.sent_bytes, self.backlog_bytes, self.number)


@dataclass(frozen=True, slots=True)
class Pull:
    """Limits what its receiver sends, as the other end has many peers. Counts as `PullRequest` does."""

    context: int
    limit_bytes: int
    """What may be sent in all; NO_LIMIT_BYTES: no limit until the sender is idle."""
    number: int
    """From 1 for the first PULL to this peer: of two that overtook each other the higher one counts."""
    unsolicited_bytes: int
    """What may be in flight without a PULL; ANY_BYTES: anything."""
    path: int = 0

    def encode(self) -> bytes:
        """Return the packet."""
        prefix = _prefix(PacketType.PULL, context=self.context, path=self.path)
        return prefix + _PULL.pack(self.limit_bytes, self.number, self.unsolicited_bytes)


Inner = Ack | Probe | Close | Closed | Nack | PathChallenge | PathResponse | PullRequest | Pull
"""Control packets of open peers: with a `Security` they are sent as Protected, and accepted in no other way."""
INNER_TYPES: Final = (Ack, Probe, Close, Closed, Nack, PathChallenge, PathResponse, PullRequest, Pull)
Control = Inner | Hello | Retry | Accept | SecureAccept | Protected | Refuse | Reset


def decode_untrusted(data: bytes) -> Control:
    """Decode a control packet. Raises PacketError, and nothing else, whatever the bytes are."""
    if len(data) < PREFIX_BYTES:
        raise PacketError(f"{len(data)} bytes are no packet: the shortest has {PREFIX_BYTES}")
    version, kind, _, path, path_sequence, context = _PREFIX.unpack_from(data)
    if version != VERSION and kind != PacketType.REFUSE:
        raise PacketError(f"version {version} is not {VERSION}")
    if kind == PacketType.PROTECTED:
        return Protected(context, data)
    decode = _DECODERS.get(kind)
    if decode is None:
        raise PacketError(f"packet type {kind} is no control packet")
    try:
        packet = decode(context, path, path_sequence, data[PREFIX_BYTES:])
    except (struct.error, IndexError) as error:
        raise PacketError(f"packet type {kind} of {len(data)} bytes is cut short") from error
    if isinstance(packet, _CANONICAL) and version == VERSION and packet.encode() != data:
        raise PacketError(f"packet type {kind} has reserved bits set")
    return packet


def foreign_hello_untrusted(data: bytes) -> int | None:
    """Return the initiator's context if this is a HELLO of another version; its offset is the same in all."""
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
    max_message, window_packets, datagram_bytes, cookie_bytes, security, source_digest, paths = rest
    end = _HELLO.size + cookie_bytes
    cookie, message = body[_HELLO.size : end], b""
    if security:
        (message_bytes,) = _LENGTH.unpack_from(body, end)
        message = body[end + _LENGTH.size : end + _LENGTH.size + message_bytes]
        if len(message) != message_bytes:
            raise PacketError(f"a handshake message of {message_bytes} bytes has {len(message)}")
    if len(body) + PREFIX_BYTES != datagram_bytes or len(cookie) != cookie_bytes:
        raise PacketError(f"a hello for {datagram_bytes} bytes has {len(body) + PREFIX_BYTES}")
    if datagram_bytes < MIN_DATAGRAM_BYTES:
        raise PacketError(f"a hello for {datagram_bytes} bytes asks for less than {MIN_DATAGRAM_BYTES}")
    _check_window(window_packets)
    if not paths:
        raise PacketError("a hello from an end without paths")
    limits = (max_message, window_packets, datagram_bytes)
    source = (source_digest, paths)
    return Hello(own_context, credit_bytes, credit_messages, *limits, cookie, path, security, message, *source)


def _check_window(window_packets: int) -> None:
    if window_packets < MIN_PEER_WINDOW_PACKETS:
        raise PacketError(f"a window of {window_packets} packets is less than {MIN_PEER_WINDOW_PACKETS}")


def _decode_retry(context: int, path: int, _path_sequence: int, body: bytes) -> Retry:
    cookie_bytes = body[0]
    if cookie_bytes > MAX_COOKIE_BYTES:
        raise PacketError(f"a cookie of {cookie_bytes} bytes is longer than {MAX_COOKIE_BYTES}")
    if len(body) <= cookie_bytes:
        raise PacketError(f"a cookie of {cookie_bytes} bytes has {len(body) - 1}")
    end = 1 + cookie_bytes
    (credential_bytes,) = _LENGTH.unpack_from(body, end)
    start = end + _LENGTH.size
    credential = body[start : start + credential_bytes]
    if len(credential) != credential_bytes or credential_bytes > MAX_CREDENTIAL_BYTES:
        raise PacketError(f"a credential of {credential_bytes} bytes has {len(credential)}")
    return Retry(context, body[1:end], path, PREFIX_BYTES + len(body), credential)


def accept_untrusted(context: int, body: bytes) -> Accept:
    """Decode what follows the prefix of an ACCEPT. Raises PacketError."""
    try:
        return _decode_accept(context, 0, 0, body)
    except struct.error as error:
        raise PacketError(f"an accept of {len(body)} bytes is cut short") from error


def _decode_accept(context: int, _path: int, _path_sequence: int, body: bytes) -> Accept:
    own_context, credit_bytes, credit_messages, *rest = _ACCEPT.unpack_from(body)
    max_message_bytes, window_packets, datagram_bytes, behind_nat = rest
    if not MIN_DATAGRAM_BYTES <= datagram_bytes <= MAX_DATAGRAM_BYTES:
        raise PacketError(f"an accept for {datagram_bytes} bytes is out of range")
    _check_window(window_packets)
    limits = (max_message_bytes, window_packets, datagram_bytes)
    return Accept(context, own_context, credit_bytes, credit_messages, *limits, behind_nat)


def _decode_refuse(context: int, _path: int, _path_sequence: int, body: bytes) -> Refuse:
    return Refuse(context, body[0], body[1] if len(body) > 1 else RefuseReason.NONE)  # other versions have no reason


def _decode_probe(context: int, path: int, path_sequence: int, body: bytes) -> Probe:
    own_context, sent_us, ack_path, ack_remote_path = _PROBE.unpack_from(body)
    return Probe(
        context, own_context, path, path_sequence, sent_us, ack_path, ack_remote_path, PREFIX_BYTES + len(body)
    )


def _decode_pull_request(context: int, path: int, _path_sequence: int, body: bytes) -> PullRequest:
    sent_bytes, backlog_bytes, number = _PULL_REQUEST.unpack_from(body)
    return PullRequest(context, sent_bytes, backlog_bytes, number, path)


def _decode_pull(context: int, path: int, _path_sequence: int, body: bytes) -> Pull:
    limit_bytes, number, unsolicited_bytes = _PULL.unpack_from(body)
    return Pull(context, limit_bytes, number, unsolicited_bytes, path)


_CANONICAL: Final = (Hello, Retry, SecureAccept, Refuse, Reset)
"""What may be received unprotected though there are keys: it must be what `encode` returns, bit by bit."""
_DECODERS: dict[int, Callable[[int, int, int, bytes], Control]] = {
    PacketType.ACK: _decode_ack,
    PacketType.HELLO: _decode_hello,
    PacketType.RETRY: _decode_retry,
    PacketType.ACCEPT: _decode_accept,
    PacketType.REFUSE: _decode_refuse,
    PacketType.PROBE: _decode_probe,
    PacketType.CLOSE: lambda context, _path, _sequence, body: Close(context, *_CONTEXT.unpack_from(body)),
    PacketType.CLOSED: lambda context, _path, _sequence, body: Closed(context, *_CONTEXT.unpack_from(body)),
    PacketType.RESET: lambda context, _path, _sequence, body: Reset(
        context, _CONTEXT.unpack_from(body)[0], body[_CONTEXT.size :]
    ),
    PacketType.PATH_CHALLENGE: lambda context, _path, _sequence, body: PathChallenge(
        context, *_CHALLENGE.unpack_from(body)
    ),
    PacketType.PATH_RESPONSE: lambda context, path, _sequence, body: PathResponse(
        context, _CONTEXT.unpack_from(body)[0], path
    ),
    PacketType.PULL_REQUEST: _decode_pull_request,
    PacketType.PULL: _decode_pull,
    PacketType.SECURE_ACCEPT: lambda context, _path, _sequence, body: SecureAccept(context, body),
    PacketType.NACK: lambda context, _path, _sequence, body: Nack(context, *_NACK.unpack_from(body)),
}
