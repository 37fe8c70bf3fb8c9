"""The byte layout of control packets. With `wire.data` it implements `srd/PROTOCOL.md`.

A control packet is the common prefix (see `wire.data`) and a body. Those that every connection exchanges all the time
(ACK, PROBE) have an encoder and a decoder of their own; the others are a `ControlPacket`, encoded and decoded by the
table in `wire.fields`. `decode_untrusted` is the inverse of `encode`; it raises `PacketError` and nothing else.

To add a packet type, change `PacketType`, the table, PROTOCOL.md and the tests' list of packets, and add a dataclass to
`Control` and `_TYPES`: its attributes have the names of the table's fields.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

from srd.proto.base.errors import PacketError
from srd.proto.base.security import MAX_CREDENTIAL_BYTES
from srd.proto.wire.data import MAX_DATAGRAM_BYTES, MIN_DATAGRAM_BYTES, PREFIX_BYTES, VERSION, Address, PacketType
from srd.proto.wire.fields import BODIES
from srd.proto.wire.status import RefuseReason


@dataclass(init=False, slots=True)
class Datagram:
    """One control packet to send from the port of local path `path`."""

    address: Address
    path: int
    data: bytes

    def __init__(self, address: Address, path: int, data: bytes) -> None:
        self.address = address
        self.path = path
        self.data = data


MAX_COOKIE_BYTES: Final = 64
"""Longest cookie: any cookie must fit into the smallest HELLO."""
MIN_PEER_WINDOW_PACKETS: Final = 64
"""Smallest window of PSNs that an endpoint may have: a segment train."""
_COOKIE_AT: Final = PREFIX_BYTES + 41  # in a HELLO: behind the fields of fixed size
_PREFIX: Final = struct.Struct(">BBBBIQ")
_REPORT: Final = struct.Struct(">BxxxIIIIHHI")


def _prefix(kind: PacketType, *, context: int, path: int = 0, path_sequence: int = 0) -> bytes:
    return _PREFIX.pack(VERSION, kind, 0, path, path_sequence & 0xFFFFFFFF, context)


@dataclass(init=False, slots=True)
class PathReport:
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
    ecn_ce: int
    """Of these, packets with a congestion mark (CE), low 16 bits."""
    received_us: int
    """When the kernel received that packet: the receiver's clock in microseconds, low 32 bits."""

    def __init__(
        self,
        path: int,
        path_sequence: int,
        sent_us: int,
        ack_delay_us: int,
        packets: int,
        duplicates: int,
        ecn_ce: int = 0,
        received_us: int = 0,
    ) -> None:
        self.path = path
        self.path_sequence = path_sequence
        self.sent_us = sent_us
        self.ack_delay_us = ack_delay_us
        self.packets = packets
        self.duplicates = duplicates
        self.ecn_ce = ecn_ce
        self.received_us = received_us

    def encode(self) -> bytes:
        """Return its part of an ACK."""
        delay_us, packets, ecn_ce = self.ack_delay_us, self.packets, self.ecn_ce
        return _REPORT.pack(
            self.path, self.path_sequence, self.sent_us, delay_us, packets, self.duplicates, ecn_ce, self.received_us
        )


_ACK: Final = struct.Struct(">QQQHBBBxxx")


def max_reports(room_bytes: int) -> int:
    """Return how many path reports an ack of at most `room_bytes` may have: they get up to half of its body."""
    return max((room_bytes - PREFIX_BYTES - _ACK.size) // 2 // _REPORT.size, 1)


def ack_bytes(bitmap: int, *, reports: int) -> int:
    """Return how long an ack is."""
    return PREFIX_BYTES + _ACK.size + reports * _REPORT.size + (bitmap.bit_length() + 7) // 8


def bitmap_room_bytes(room_bytes: int, *, reports: int) -> int:
    """Return the room for the bitmap in an ack of at most `room_bytes` with so many reports."""
    return room_bytes - PREFIX_BYTES - _ACK.size - reports * _REPORT.size


@dataclass(init=False, slots=True)
class Ack:
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
    flags: int
    """NOT_READY, or 0."""
    path: int
    """Path of the ack's sender that it is sent over."""
    remote_path: int
    """Path of the ack's receiver that it is sent to. The two paths together are the ack path."""

    def __init__(
        self,
        context: int,
        cumulative: int,
        bitmap: int,
        credit_bytes: int,
        credit_messages: int,
        reports: tuple[PathReport, ...],
        flags: int = 0,
        path: int = 0,
        remote_path: int = 0,
    ) -> None:
        self.context = context
        self.cumulative = cumulative
        self.bitmap = bitmap
        self.credit_bytes = credit_bytes
        self.credit_messages = credit_messages
        self.reports = reports
        self.flags = flags
        self.path = path
        self.remote_path = remote_path

    def encode(self) -> bytes:
        """Return the packet."""
        bitmap = self.bitmap.to_bytes((self.bitmap.bit_length() + 7) // 8, "little")
        lengths = (len(bitmap), len(self.reports))
        credit = (self.credit_bytes, self.credit_messages)
        head = _ACK.pack(self.cumulative, *credit, *lengths, self.flags, self.remote_path)
        body = b"".join([report.encode() for report in self.reports])
        return _prefix(PacketType.ACK, context=self.context, path=self.path) + head + body + bitmap


class ControlPacket:
    """A control packet that the table describes: its attributes have the names of the fields."""

    __slots__ = ()

    def encode(self) -> bytes:
        """Return the packet, padded with zeros."""
        kind = _KINDS[type(self)]
        out = _prefix(kind, context=getattr(self, "context", 0), path=getattr(self, "path", 0))
        for field in BODIES[kind]:
            if field.only_if and not getattr(self, field.only_if):
                continue
            if field.name == "padding":
                out = out.ljust(getattr(self, "size_bytes", 0), b"\0")
            elif not isinstance(field.size, int):
                out += getattr(self, field.name)
            elif field.measures:
                out += len(getattr(self, field.measures)).to_bytes(field.size, "big")
            else:
                out += getattr(self, field.name).to_bytes(field.size, "big")
        return out


@dataclass(frozen=True, slots=True)
class Hello(ControlPacket):
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
    def size_bytes(self) -> int:
        """Size of the whole packet."""
        return self.datagram_bytes

    @property
    def transcript(self) -> bytes:
        """What the handshake message is bound to: the packet up to the cookie."""
        return self.encode()[: _COOKIE_AT + len(self.cookie)]


@dataclass(frozen=True, slots=True)
class Retry(ControlPacket):
    """Requests the HELLO again, with this cookie; no state is kept. Padded as the HELLO, to test the return path."""

    context: int
    cookie: bytes
    path: int = 0
    """Path of the HELLO, as the HELLO gave it."""
    size_bytes: int = 0
    """Size of the whole packet; if that is less than the content needs, as long as needed."""
    credential: bytes = b""
    """The responder's public key or certificate; empty in plain text."""


@dataclass(frozen=True, slots=True)
class Accept(ControlPacket):
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

    @property
    def body(self) -> bytes:
        """What follows the prefix; the payload of the responder's handshake message."""
        return self.encode()[PREFIX_BYTES:]


@dataclass(frozen=True, slots=True)
class SecureAccept(ControlPacket):
    """The responder's handshake message, in which an ACCEPT's body is encrypted."""

    context: int
    message: bytes


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


@dataclass(frozen=True, slots=True)
class Refuse(ControlPacket):
    """The peer will not be opened; `status` is the reason."""

    context: int
    status: int
    reason: int = RefuseReason.NONE
    """A `RefuseReason`, or a number that this end does not know."""


@dataclass(frozen=True, slots=True)
class Close(ControlPacket):
    """Closes the peer. It carries both contexts, as all packets do that end a peer."""

    context: int
    own_context: int
    """The sender's."""


@dataclass(frozen=True, slots=True)
class Closed(ControlPacket):
    """Answers CLOSE, with its two contexts exchanged: this end keeps no state of the peer."""

    context: int
    own_context: int


@dataclass(frozen=True, slots=True)
class Reset(ControlPacket):
    """Answers a packet for an unknown context: in plain text a PROBE, with its two contexts exchanged.

    Else any protected packet, whose sender's context is not known: `context` is 0, and the token shows who answers.
    """

    context: int
    own_context: int
    """The unknown one."""
    token: bytes = b""


@dataclass(frozen=True, slots=True)
class Nack(ControlPacket):
    """A message is refused: none of it will be acknowledged, except as ABORTED."""

    context: int
    message: int
    """Low 32 bits of its number."""
    status: int
    """Reason, as a completion status of the requester."""


@dataclass(frozen=True, slots=True)
class PathChallenge(ControlPacket):
    """Tests whether its receiver receives at the address that packets of one of its paths come from."""

    context: int
    token: int
    """To be returned over that path."""
    remote_path: int
    """That path of the receiver."""


@dataclass(frozen=True, slots=True)
class PathResponse(ControlPacket):
    """Returns the token of a PATH_CHALLENGE, over the path that it was sent to."""

    context: int
    token: int
    path: int


NO_LIMIT_BYTES: Final = (1 << 64) - 1
"""The `limit_bytes` of a PULL that stands for no limit."""
ANY_BYTES: Final = (1 << 32) - 1
"""The `unsolicited_bytes` of a PULL that stands for no limit."""


@dataclass(frozen=True, slots=True)
class PullRequest(ControlPacket):
    """Asks for a PULL: its sender has data, and may not send it. Counts data packets with their headers."""

    context: int
    sent_bytes: int
    """What its sender has sent in all, retransmissions too."""
    backlog_bytes: int
    """What it would send now."""
    number: int
    """Of the last PULL that it has received; 0: none."""
    path: int = 0


@dataclass(frozen=True, slots=True)
class Pull(ControlPacket):
    """Limits what its receiver sends, as the other end has many peers. Counts as `PullRequest` does."""

    context: int
    limit_bytes: int
    """What may be sent in all; NO_LIMIT_BYTES: no limit until the sender is idle."""
    number: int
    """From 1 for the first PULL to this peer: of two that overtook each other the higher one counts."""
    unsolicited_bytes: int
    """What may be in flight without a PULL; ANY_BYTES: anything."""
    path: int = 0


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
    body = data[PREFIX_BYTES:]
    if kind == PacketType.ACK:
        return _ack_untrusted(context, path, body)
    if kind == PacketType.PROBE:
        return _probe_untrusted(context, path, path_sequence, body)
    if kind not in _TYPES:
        raise PacketError(f"packet type {kind} is no control packet")
    if kind == PacketType.REFUSE and len(body) == 1:
        body += bytes([RefuseReason.NONE])  # other versions have no reason
    packet: Control = _packet_untrusted(kind, context, path, body)
    if isinstance(packet, _CANONICAL) and version == VERSION and packet.encode() != data:
        raise PacketError(f"packet type {kind} has reserved bits set")
    return packet


def foreign_hello_untrusted(data: bytes) -> int | None:
    """Return the initiator's context if this is a HELLO of another version; its offset is the same in all."""
    if len(data) < MIN_DATAGRAM_BYTES or data[0] == VERSION or data[1] != PacketType.HELLO:
        return None
    return int.from_bytes(data[PREFIX_BYTES : PREFIX_BYTES + 8], "big")


def _ack_untrusted(context: int, path: int, body: bytes) -> Ack:
    if len(body) < _ACK.size:
        raise _cut_short(PacketType.ACK, body)
    cumulative, credit_bytes, credit_messages, bitmap_bytes, report_count, flags, remote_path = _ACK.unpack_from(body)
    at = _ACK.size + report_count * _REPORT.size
    if len(body) < at:
        raise _cut_short(PacketType.ACK, body)
    reports = tuple([PathReport(*report) for report in _REPORT.iter_unpack(body[_ACK.size : at])])
    if len(body) != at + bitmap_bytes:
        raise PacketError(f"an ack with {bitmap_bytes} bytes of bitmap has {len(body) - at}")
    bitmap = int.from_bytes(body[at:], "little")
    if bitmap & 1:
        raise PacketError("an ack's bitmap names its cumulative point as received")
    return Ack(context, cumulative, bitmap, credit_bytes, credit_messages, reports, flags, path, remote_path)


def _check_untrusted(packet: Control, size_bytes: int) -> None:
    """Raise PacketError for values that no endpoint sends, in a packet of `size_bytes`."""
    if isinstance(packet, Retry):
        if len(packet.cookie) > MAX_COOKIE_BYTES:
            raise PacketError(f"a cookie of {len(packet.cookie)} bytes is longer than {MAX_COOKIE_BYTES}")
        if len(packet.credential) > MAX_CREDENTIAL_BYTES:
            raise PacketError(f"a credential of {len(packet.credential)} bytes is longer than {MAX_CREDENTIAL_BYTES}")
    if not isinstance(packet, Hello | Accept):
        return
    datagram_bytes = packet.datagram_bytes
    if isinstance(packet, Hello) and size_bytes != datagram_bytes:
        raise PacketError(f"a hello for {datagram_bytes} bytes has {size_bytes}")
    if not MIN_DATAGRAM_BYTES <= datagram_bytes <= MAX_DATAGRAM_BYTES:
        limits = f"{MIN_DATAGRAM_BYTES} to {MAX_DATAGRAM_BYTES}"
        raise PacketError(f"datagrams of {datagram_bytes} bytes are out of range: {limits}")
    if packet.window_packets < MIN_PEER_WINDOW_PACKETS:
        raise PacketError(f"a window of {packet.window_packets} packets is less than {MIN_PEER_WINDOW_PACKETS}")
    if isinstance(packet, Hello) and not packet.paths:
        raise PacketError("a hello from an end without paths")


def accept_untrusted(context: int, body: bytes) -> Accept:
    """Decode what follows the prefix of an ACCEPT. Raises PacketError."""
    accept: Accept = _packet_untrusted(PacketType.ACCEPT, context, 0, body)
    return accept


def _probe_untrusted(context: int, path: int, path_sequence: int, body: bytes) -> Probe:
    if len(body) < _PROBE.size:
        raise _cut_short(PacketType.PROBE, body)
    own_context, sent_us, ack_path, ack_remote_path = _PROBE.unpack_from(body)
    size_bytes = PREFIX_BYTES + len(body)
    return Probe(context, own_context, path, path_sequence, sent_us, ack_path, ack_remote_path, size_bytes)


def _cut_short(kind: int, body: bytes) -> PacketError:
    return PacketError(f"packet type {kind} of {PREFIX_BYTES + len(body)} bytes is cut short")


def _packet_untrusted(kind: int, context: int, path: int, body: bytes) -> Any:
    """Decode a body by the table. What follows its last field is ignored."""
    made, names = _TYPES[kind]
    size_bytes = PREFIX_BYTES + len(body)
    values: dict[str, Any] = {"context": context, "path": path, "size_bytes": size_bytes}
    at = 0
    for field in BODIES[PacketType(kind)]:
        if field.only_if and not values[field.only_if]:
            continue
        size = field.size
        end = len(body) if size is None else at + (size if isinstance(size, int) else values[size])
        if end > len(body):
            if isinstance(size, int):
                raise _cut_short(kind, body)
            raise PacketError(f"a {field.name} of {end - at} bytes has {len(body) - at}")
        part = body[at:end]
        values[field.name] = int.from_bytes(part, "big") if isinstance(size, int) else part
        at = end
    packet = made(**{name: values[name] for name in names if name in values})
    _check_untrusted(packet, size_bytes)
    return packet


_CANONICAL: Final = (Hello, Retry, SecureAccept, Refuse, Reset)
"""What may be received unprotected though there are keys: it must be what `encode` returns, bit by bit."""
_KINDS: dict[type[Any], PacketType] = {
    Hello: PacketType.HELLO,
    Retry: PacketType.RETRY,
    Accept: PacketType.ACCEPT,
    SecureAccept: PacketType.SECURE_ACCEPT,
    Refuse: PacketType.REFUSE,
    Close: PacketType.CLOSE,
    Closed: PacketType.CLOSED,
    Reset: PacketType.RESET,
    Nack: PacketType.NACK,
    PathChallenge: PacketType.PATH_CHALLENGE,
    PathResponse: PacketType.PATH_RESPONSE,
    PullRequest: PacketType.PULL_REQUEST,
    Pull: PacketType.PULL,
}
_TYPES: dict[int, tuple[type[Any], tuple[str, ...]]] = {
    kind: (made, tuple(field.name for field in fields(made))) for made, kind in _KINDS.items()
}
"""The class of each packet that the table describes, and its attributes."""
