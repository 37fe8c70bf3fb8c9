"""The byte layout of data packets, and of the common prefix. With `wire.control` it implements `srd/PROTOCOL.md`.

Rules.
1. Everything is in network byte order. Every packet starts with the same 16 bytes: version, type, flags, path, path
   sequence, and the context id that the *receiver* of the packet chose (0 while it is unknown).
2. A data packet is a fixed header of 56 bytes and payload. A burst's headers are one structured array. Read as seven
   big-endian 64-bit lanes, consecutive headers of a burst differ by one constant vector (see `header_steps`): senders
   use it to write headers, and receivers to find the bursts in what arrived.
3. Everything else is a control packet: see `wire.control`.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from srd.proto.base.security import PacketProtection

VERSION: Final = 6
PREFIX_BYTES: Final = 16
MIN_DATAGRAM_BYTES: Final = 576
"""Smallest datagram that two ends may agree on: what any IPv4 host must receive (RFC 1122)."""
MAX_DATAGRAM_BYTES: Final = 65_507
"""Largest UDP payload over IPv4."""
DEFAULT_PORT: Final = 19870
"""The UDP port that examples listen at, and that scapy and Wireshark take for SRD. IANA has assigned it to nobody, and
no other dissector of Wireshark claims it."""


class PacketType(IntEnum):
    """First byte after the version."""

    DATA = 1
    ACK = 2
    HELLO = 3
    RETRY = 4
    ACCEPT = 5
    REFUSE = 6
    PROBE = 7
    CLOSE = 8
    CLOSED = 9
    RESET = 10
    NACK = 11
    PATH_CHALLENGE = 12
    PATH_RESPONSE = 13
    SECURE_ACCEPT = 14
    PROTECTED = 15
    PULL_REQUEST = 16
    PULL = 17


class Opcode(IntEnum):
    """What a data packet is part of; the low bits of its flags. The first three are EFA's `efa_io_send_op_type`."""

    SEND = 0
    READ = 1
    """Requests `length` bytes at `offset` of the responder's registration `key`; has no payload."""
    WRITE = 2
    RESPONSE = 3
    """What a READ requested; `key` is the number of the READ's message."""


OPCODE_BITS: Final = 3
IMMEDIATE: Final = 4
"""Flag: the field `immediate` is valid."""
ABORTED: Final = 8
"""Flag: the message was aborted by its sender. What was received of it is discarded; the rest is never sent."""
WITH_ACK: Final = 16
"""Flag of a SEND that is one packet: an ACK follows the payload, which has the `length` of the message."""
NOT_READY: Final = 1
"""Flag of an ACK: packets were dropped since the last ACK for lack of memory."""
MAX_ACK_WITH_DATA_BYTES: Final = 256
"""Longest such ACK that this end sends: nearly all are shorter, and a transmitter has room for many."""

_WRITE_IMMEDIATE: Final = Opcode.WRITE | IMMEDIATE


def takes_credit(flags: int) -> bool:
    """Whether a message with these flags takes one message of credit: its receiver's application is notified of it."""
    return flags & OPCODE_BITS == 0 or flags & (OPCODE_BITS | IMMEDIATE) == _WRITE_IMMEDIATE


HEADER: Final = np.dtype(
    [
        ("version", "u1"),
        ("type", "u1"),
        ("flags", "u1"),  # opcode, IMMEDIATE, ABORTED
        ("path", "u1"),
        ("path_sequence", ">u4"),  # counts every packet the sender put on this path, retransmissions too
        ("context", ">u8"),  # chosen by the receiver
        ("psn", ">u8"),  # names the packet's content; a retransmission keeps it
        ("sent_us", ">u4"),  # sender's clock, wraps
        ("message", ">u4"),
        ("length", ">u4"),  # of the whole message, bytes
        ("immediate", ">u4"),  # with IMMEDIATE the sender's value; with ABORTED a status
        ("offset", ">u8"),  # of this payload in the message; READ, WRITE: in the registration; ABORTED: end PSN
        ("key", ">u8"),  # READ, WRITE: the responder's registration; RESPONSE: the READ's message; SEND: Destinations'
    ]
)
HEADER_BYTES: Final = HEADER.itemsize
HEADER_LANES: Final = HEADER_BYTES // 8
MAX_BURST_PACKETS: Final = 768
"""Largest number of packets in a burst: the packets of a burst share its cost at both ends. At MTU 1500 it is 1 MiB."""
MAX_TRAIN_PACKETS: Final = 64
"""Largest number of datagrams in a segment train (GSO, GRO): Linux' UDP_MAX_SEGMENTS before 6.9."""
SMALL_BYTES: Final = 1024
"""Datagrams shorter than this are small: a segment train of 64 KiB has so many of them that a receiver cannot have a
landing target ready for each. A burst of small ones has at most the bytes of one full-size datagram."""

FEW_PACKETS: Final = 10
"""Up to so many headers are packed and unpacked one by one, more by NumPy, whose cost does not depend on the number."""
_PACKED: Final = struct.Struct(">HBBIQQIIIIQQ")  # HEADER, with version and type in one field
_SEVEN: Final = struct.Struct(">7Q")
_DATA_KIND: Final = VERSION << 8 | PacketType.DATA
_DATA_WORD: Final = _DATA_KIND << 48
_NO_SEND: Final = 0xFF & ~IMMEDIATE  # bits of the flags that no SEND has
_INDEX: Final = np.arange(MAX_BURST_PACKETS, dtype=np.uint64)[:, np.newaxis]

Lanes = npt.NDArray[np.uint64]
_Header = tuple[int, int, int, int, int, int, int, int, int, int, int, int]
"""What `_PACKED` unpacks. mypyc keeps a tuple of known length in registers; any other is taken apart by an iterator."""
_Head = tuple[int, int, int, int, int, int, int]
"""What `_SEVEN` unpacks."""


Address = Any
"""Source or destination of packets: opaque to the core, which only compares it and returns it (but see `host_of`)."""


def host_of(address: Address) -> Any:
    """Return an address without its port: of a socket's (host, port, ...), or of a string that ends in ":port"."""
    return (address[0], *address[2:]) if isinstance(address, tuple) else str(address).rpartition(":")[0]


def network_of(address: Address) -> Any:
    """Return what one host may have all addresses of: the first 64 bits of an IPv6 address, else the host."""
    host = host_of(address)
    text = host[0] if isinstance(host, tuple) else host
    if ":" not in text or "." in text:
        return host
    head, _, tail = text.partition("::")
    groups, rest = (part.split(":") if part else [] for part in (head, tail))
    return ":".join([*groups, *["0"] * (8 - len(groups) - len(rest)), *rest][:4])


class Burst:
    """Consecutive packets of one message, equal in size but for the last, sent on one path at once."""

    def __init__(  # noqa: PLR0917 - a field each
        self,
        address: Address,
        path: int,
        path_sequence: int,
        context: int,
        psn: int,
        count: int,
        sent_us: int,
        message: int,
        length: int,
        immediate: int,
        offset: int,
        key: int,
        payload_offset: int,
        payload_bytes: int,
        segment_bytes: int,
        flags: int = 0,
        payload_addresses: Lanes | None = None,
        protection: PacketProtection | None = None,
        from_path: int | None = None,
        ack: bytes | None = None,
    ) -> None:
        self.address = address
        self.path = path
        self.path_sequence = path_sequence
        self.context = context
        self.psn = psn
        self.count = count
        self.sent_us = sent_us
        self.message = message
        self.length = length
        self.immediate = immediate
        self.offset = offset
        self.key = key
        self.payload_offset = payload_offset  # where the payload starts in the sender's region
        self.payload_bytes = payload_bytes  # of all packets
        self.segment_bytes = segment_bytes  # of each packet but the last
        self.flags = flags  # an `Opcode`, and IMMEDIATE or ABORTED
        # For a batch: where each payload starts. Each packet is a message of its own, from number `message` on.
        self.payload_addresses = payload_addresses
        self.protection = protection  # what the packets are encrypted with; None: plain text
        self.from_path = from_path  # from whose port it is sent; None: from its own (PROTOCOL.md, section 5, NATs)
        self.ack = ack  # with WITH_ACK: what follows the payload

    @property
    def carried_bytes(self) -> int:
        """Payload of all packets, and the ACK behind it."""
        return self.payload_bytes if self.ack is None else self.payload_bytes + len(self.ack)

    @property
    def port(self) -> int:
        """The path from whose port it is sent."""
        return self.path if self.from_path is None else self.from_path


@lru_cache(maxsize=64)
def header_steps(segment_bytes: int) -> Lanes:
    """Return row i: what header i of a burst adds, lane by lane, to the first: path sequence, PSN and offset grow."""
    return _INDEX * np.array([1, 0, 1, 0, 0, segment_bytes, 0], dtype=np.uint64)


MESSAGE_STEPS: Lanes = _INDEX * np.array([1, 0, 1, 1, 0, 0, 0], dtype=np.uint64)
"""Row i: what header i of a batch adds to the first: path sequence, PSN and message number grow."""


def write_headers(burst: Burst, *, out: memoryview, stride: int = HEADER_BYTES) -> None:
    """Write the burst's headers to `out` (bytes), one every `stride` bytes; what lies between them stays."""
    if burst.count <= FEW_PACKETS:
        _write_few(burst, out, stride)
        return
    first = [
        _DATA_WORD | burst.flags << 40 | burst.path << 32 | (burst.path_sequence & 0xFFFFFFFF),
        burst.context,
        burst.psn,
        burst.sent_us << 32 | burst.message,
        burst.length << 32 | burst.immediate,
        burst.offset,
        burst.key,
    ]
    lanes: Lanes = np.ndarray((burst.count, HEADER_LANES), ">u8", out, strides=(stride, 8))
    # Compute all headers at once; NumPy swaps the bytes on output.
    row = np.array(first, dtype=np.uint64)
    steps = header_steps(burst.segment_bytes) if burst.payload_addresses is None else MESSAGE_STEPS
    np.add(row, steps[: burst.count], out=lanes, casting="unsafe")


def _write_few(burst: Burst, out: memoryview, stride: int) -> None:
    path, context, sent_us, message = burst.path, burst.context, burst.sent_us, burst.message
    length, immediate, key = burst.length, burst.immediate, burst.key
    step, message_step = (burst.segment_bytes, 0) if burst.payload_addresses is None else (0, 1)
    path_sequence, psn, offset = burst.path_sequence & 0xFFFFFFFF, burst.psn, burst.offset
    flags = burst.flags
    for at in range(0, burst.count * stride, stride):
        _PACKED.pack_into(
            out,
            at,
            _DATA_KIND,
            flags,
            path,
            path_sequence,
            context,
            psn,
            sent_us,
            message,
            length,
            immediate,
            offset,
            key,
        )
        path_sequence += 1
        psn += 1
        message += message_step
        offset += step


class GroDatagram:
    """One datagram, or a segment train of equal ones (but for the last) that the kernel joined (GRO).

    A segment train comes from one address over one path; its payloads are contiguous.
    """

    def __init__(
        self,
        headers: memoryview,
        count: int,
        payload_offset: int,
        payload_bytes: int,
        segment_bytes: int,
        address: Address,
        received_at: float,
        *,
        ecn_ce: bool = False,
        is_one_burst: bool = False,
        context: int | None = None,
    ) -> None:
        self.headers = headers  # back to back; what follows the first `count` is undefined
        self.count = count
        self.payload_offset = payload_offset  # where the first payload landed, as an offset into the receive region
        self.payload_bytes = payload_bytes  # of all packets together
        self.segment_bytes = segment_bytes  # of each packet but the last
        self.address = address
        self.received_at = received_at  # by the kernel, on the clock of `now`
        # Whether its packets carried a congestion mark (CE, RFC 3168): all or none, as GRO joins no others.
        self.ecn_ce = ecn_ce
        # Whether `is_one_burst_untrusted` was found true of its headers, perhaps together with others.
        self.is_one_burst = is_one_burst
        self.context = context  # whose keys all its packets are authentic with; None: plain text

    def extend(
        self,
        *,
        count: int,
        payload_offset: int,
        payload_bytes: int,
        address: Address,
        received_at: float,
        ecn_ce: bool,
        context: int | None = None,
    ) -> bool:
        """Add packets whose headers follow these; return False if their payload does not, or if they are not alike."""
        follows = payload_offset == self.payload_offset + self.payload_bytes
        is_alike = address == self.address and ecn_ce == self.ecn_ce and context == self.context
        if not follows or not is_alike or self.count + count > MAX_BURST_PACKETS:
            return False
        self.count += count
        self.payload_bytes += payload_bytes
        self.received_at = received_at
        return True


class ReceivedBurst:
    """Packets of one burst that arrived together and are contiguous: the unit that the receiver processes."""

    def __init__(  # noqa: PLR0917 - a field each
        self,
        path: int,
        path_sequence: int,
        context: int,
        psn: int,
        count: int,
        sent_us: int,
        message: int,
        length: int,
        immediate: int,
        offset: int,
        key: int,
        payload_offset: int,
        payload_bytes: int,
        segment_bytes: int,
        address: Address,
        received_at: float,
        flags: int = 0,
        *,
        ecn_ce: bool = False,
        batch: bool = False,
    ) -> None:
        self.path = path
        self.path_sequence = path_sequence
        self.context = context
        self.psn = psn
        self.count = count
        self.sent_us = sent_us
        self.message = message
        self.length = length
        self.immediate = immediate
        self.offset = offset
        self.key = key
        self.payload_offset = payload_offset
        self.payload_bytes = payload_bytes
        self.segment_bytes = segment_bytes
        self.address = address
        self.received_at = received_at
        self.flags = flags
        self.ecn_ce = ecn_ce
        self.batch = batch  # whether each packet is a message of its own, numbered consecutively from `message`


def single_packet(burst: ReceivedBurst, index: int) -> ReceivedBurst:
    """Return one message of a batch, as a burst of its own."""
    return ReceivedBurst(
        burst.path,
        burst.path_sequence + index & 0xFFFFFFFF,
        burst.context,
        burst.psn + index,
        1,
        burst.sent_us,
        burst.message + index & 0xFFFFFFFF,
        burst.length,
        burst.immediate,
        burst.offset,
        burst.key,
        burst.payload_offset + index * burst.length,
        burst.length,
        burst.length,
        burst.address,
        burst.received_at,
        burst.flags,
        ecn_ce=burst.ecn_ce,
    )


def received_bursts_untrusted(datagram: GroDatagram) -> list[ReceivedBurst]:
    """Split a segment train into received bursts, usually one. Packets of another version or type are dropped."""
    bursts: list[ReceivedBurst] = []
    if datagram.count == 1 or datagram.is_one_burst:
        _append(bursts, datagram, start=0, end=datagram.count, batch=False)
        return bursts
    start = 0
    for end, batch in _cuts(datagram):
        _append(bursts, datagram, start=start, end=end, batch=batch)
        start = end
    return bursts


def _append(bursts: list[ReceivedBurst], datagram: GroDatagram, *, start: int, end: int, batch: bool) -> None:
    """Append the burst that has the packets of a datagram from `start` to `end`, unless they are no data."""
    header: _Header = _PACKED.unpack_from(datagram.headers, start * HEADER_BYTES)
    kind, flags, path, path_sequence, context, psn, sent_us, message, length, immediate, offset, key = header
    if kind != _DATA_KIND:
        return
    segment_bytes = datagram.segment_bytes
    skipped = start * segment_bytes
    bursts.append(
        ReceivedBurst(
            path,
            path_sequence,
            context,
            psn,
            end - start,
            sent_us,
            message,
            length,
            immediate,
            offset,
            key,
            datagram.payload_offset + skipped,
            min(end * segment_bytes, datagram.payload_bytes) - skipped,
            segment_bytes,
            datagram.address,
            datagram.received_at,
            flags,
            ecn_ce=datagram.ecn_ce,
            batch=batch,
        )
    )


_APART: Final = 0  # one by one: mypyc looks up what is unpacked in the module's dictionary
_BURST: Final = 1
_BATCH: Final = 2
"""Relation of two neighbours in a segment train: none, packets of one message, messages of one packet each."""


def _cuts(datagram: GroDatagram) -> list[tuple[int, bool]]:
    """Return after which of several packets a burst ends, and whether it is a batch.

    Neighbours belong to one burst if their headers differ by exactly its step.
    """
    count = datagram.count
    if count <= FEW_PACKETS:
        return _cut(_relations(datagram), datagram)
    # The common case is one burst: compute its headers from the first, and compare them as bytes.
    first: _Head = _SEVEN.unpack_from(datagram.headers)
    relation = _relation(first, _SEVEN.unpack_from(datagram.headers, HEADER_BYTES), datagram.segment_bytes)
    steps = MESSAGE_STEPS if relation == _BATCH else header_steps(datagram.segment_bytes)
    whole = relation != _BATCH or datagram.payload_bytes == count * datagram.segment_bytes
    if whole and _is_series(first, datagram.headers, count, steps):
        return [(count, relation == _BATCH)]
    return _cut(_relations(datagram), datagram)


def is_one_burst_untrusted(headers: memoryview, *, count: int, segment_bytes: int) -> bool:
    """Whether `count` headers, which lie back to back, are those of one burst with so much payload in each packet."""
    return _is_series(_SEVEN.unpack_from(headers), headers, count, header_steps(segment_bytes))


def _is_series(first: _Head, headers: memoryview, count: int, steps: Lanes) -> bool:
    """Whether `count` headers are what `steps` makes of the first: they are computed, and compared as bytes."""
    written = (np.array(first, dtype=np.uint64) + steps[:count]).astype(">u8").tobytes()
    return written == headers[: count * HEADER_BYTES].tobytes()


def _cut(relations: list[int], datagram: GroDatagram) -> list[tuple[int, bool]]:
    if relations[-1] == _BATCH and datagram.payload_bytes < datagram.count * datagram.segment_bytes:
        relations[-1] = _APART  # the last payload is shorter, so it is not a whole message
    cuts, kind = [], _APART
    for end, relation in enumerate(relations, 1):
        if relation == _APART or kind not in (_APART, relation):
            cuts.append((end, kind == _BATCH))
            kind = _APART
        else:
            kind = relation
    return [*cuts, (datagram.count, kind == _BATCH)]


def _relations(datagram: GroDatagram) -> list[int]:
    """Return the relation of each two neighbours."""
    headers, segment_bytes = datagram.headers, datagram.segment_bytes
    relations: list[int] = []
    one: _Head = _SEVEN.unpack_from(headers)
    for at in range(HEADER_BYTES, datagram.count * HEADER_BYTES, HEADER_BYTES):
        other: _Head = _SEVEN.unpack_from(headers, at)
        relations.append(_relation(one, other, segment_bytes))
        one = other
    return relations


def _relation(one: _Head, other: _Head, segment_bytes: int) -> int:
    a, b, c, d, e, f, g = one
    if other == (a + 1, b, c + 1, d, e, f + segment_bytes, g):
        return _BURST
    if other == (a + 1, b, c + 1, d + 1, e, f, g) and f == 0 and e >> 32 == segment_bytes and not a >> 40 & _NO_SEND:
        return _BATCH if segment_bytes else _APART
    return _APART


def expand(low: int, *, near: int) -> int:
    """Return the integer closest to `near` whose low 32 bits are `low`: undoes the truncation of a sequence number."""
    value = (near & ~0xFFFFFFFF) | low
    if value - near > 1 << 31 and value >= 1 << 32:
        return value - (1 << 32)
    return value + (1 << 32) if near - value > 1 << 31 else value
