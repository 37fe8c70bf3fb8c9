"""The byte layout of data packets, and what all packets share. With `control` the implementation of `srd/PROTOCOL.md`.

Rules.
1. Everything is in network byte order. Every packet starts with the same 16 bytes: version, type, flags, path,
   path sequence, and the context id that the *receiver* of the packet chose (0 while it is unknown).
2. A data packet is a fixed header of 56 bytes and payload. A burst's headers are one structured array, and as seven
   big-endian 64-bit words a header they differ from one packet of the burst to the next by one constant vector (see
   `HEADER_STEP`): that is how they are written, and how a receiver finds the bursts in what arrived.
3. Everything else is a control packet: see `control`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

VERSION = 1
PREFIX_BYTES = 16
MIN_DATAGRAM_BYTES = 576
"""Smallest datagram two ends may agree on: what any IPv4 host must take (RFC 1122)."""
MAX_DATAGRAM_BYTES = 65_507
"""Largest UDP payload over IPv4."""


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


HEADER = np.dtype(
    [
        ("version", "u1"),
        ("type", "u1"),
        ("flags", "u1"),
        ("path", "u1"),
        ("path_sequence", ">u4"),  # counts every packet the sender put on this path, retransmissions too
        ("context", ">u8"),  # chosen by the receiver
        ("psn", ">u8"),  # names the packet's content; a retransmission keeps it
        ("sent_us", ">u4"),  # sender's clock, wraps
        ("message", ">u4"),
        ("length", ">u4"),  # of the whole message, bytes
        ("immediate", ">u4"),
        ("offset", ">u8"),  # of this payload in the message (or, tagged, in the target)
        ("key", ">u8"),  # registration that a tagged operation names; 0 for a send
    ]
)
HEADER_BYTES = HEADER.itemsize
HEADER_WORDS = HEADER_BYTES // 8
MAX_BURST_PACKETS = 64
"""UDP_MAX_SEGMENTS of kernels before 6.9: more in one burst is not portable."""

_INDEX = np.arange(MAX_BURST_PACKETS, dtype=np.uint64)[:, np.newaxis]

Words = npt.NDArray[np.uint64]


Address = Any
"""Where packets go and come from: opaque to the core, which only compares it and hands it back."""


@dataclass(slots=True)
class Burst:
    """Consecutive packets of one message, equal in size but for the last, sent on one path in one go."""

    address: Address
    path: int
    path_sequence: int
    context: int
    psn: int
    count: int
    sent_us: int
    message: int
    length: int
    immediate: int
    offset: int
    key: int
    payload_offset: int
    """Where the payload starts in the sender's region."""
    payload_bytes: int
    """Payload of all packets of the burst."""
    segment_bytes: int
    """Payload of each packet but the last."""


def header_step(segment_bytes: int) -> Words:
    """Differences between the header words of neighbouring packets of one burst: path sequence, PSN, offset."""
    return np.array([1, 0, 1, 0, 0, segment_bytes, 0], dtype=np.uint64)


def write_headers(burst: Burst, *, out: npt.NDArray[np.void]) -> None:
    """Write the burst's headers to `out`, a contiguous HEADER array of at least `burst.count` rows."""
    first = np.array(
        [
            VERSION << 56 | PacketType.DATA << 48 | burst.path << 32 | (burst.path_sequence & 0xFFFFFFFF),
            burst.context,
            burst.psn,
            burst.sent_us << 32 | burst.message,
            burst.length << 32 | burst.immediate,
            burst.offset,
            burst.key,
        ],
        dtype=np.uint64,
    )
    words = out[: burst.count].view(">u8").reshape(burst.count, HEADER_WORDS)
    # Row i is the first row plus i times the step: one broadcast, byte-swapped on assignment.
    words[:] = first + _INDEX[: burst.count] * header_step(burst.segment_bytes)


@dataclass(slots=True)
class Arrivals:
    """Data packets of one receive batch, flat over all datagrams; row i of each array is packet i."""

    headers: npt.NDArray[np.void]
    """HEADER rows."""
    payload_offsets: npt.NDArray[np.int64]
    """Where each payload landed, as an offset into the receive region."""
    payload_lengths: npt.NDArray[np.int64]
    """Payload bytes of each packet."""
    sources: npt.NDArray[np.intp]
    """Row of `addresses` that each packet came from."""
    addresses: list[Address]
    received_at: npt.NDArray[np.float64]
    """When the kernel received each packet, on the clock of `now`."""


@dataclass(slots=True)
class Run:
    """Packets of one burst that arrived together and lie back to back; the unit in which the receiver thinks."""

    path: int
    path_sequence: int
    context: int
    psn: int
    count: int
    sent_us: int
    message: int
    length: int
    immediate: int
    offset: int
    key: int
    payload_offset: int
    payload_bytes: int
    segment_bytes: int
    address: Address
    received_at: float


def runs_untrusted(arrivals: Arrivals) -> list[Run]:
    """Cut a batch of data packets into runs; rows of another version or type are dropped."""
    headers = arrivals.headers
    if len(headers) == 0:
        return []
    words = np.ascontiguousarray(headers).view(">u8").reshape(-1, HEADER_WORDS).astype(np.uint64)
    lengths = arrivals.payload_lengths
    ends = np.append(_run_ends(words, arrivals), len(words)).tolist()
    runs: list[Run] = []
    start = 0
    for end in ends:
        kind, context, psn, stamp, size, offset, key = words[start].tolist()
        if kind >> 48 == VERSION << 8 | PacketType.DATA:
            runs.append(
                Run(
                    path=kind >> 32 & 0xFF,
                    path_sequence=kind & 0xFFFFFFFF,
                    context=context,
                    psn=psn,
                    count=end - start,
                    sent_us=stamp >> 32,
                    message=stamp & 0xFFFFFFFF,
                    length=size >> 32,
                    immediate=size & 0xFFFFFFFF,
                    offset=offset,
                    key=key,
                    payload_offset=int(arrivals.payload_offsets[start]),
                    payload_bytes=int(lengths[start:end].sum()),
                    segment_bytes=int(lengths[start]),
                    address=arrivals.addresses[arrivals.sources[start]],
                    received_at=float(arrivals.received_at[end - 1]),
                )
            )
        start = end
    return runs


def _run_ends(words: Words, arrivals: Arrivals) -> npt.NDArray[np.intp]:
    """Rows (exclusive) at which a run ends, other than the last: the next header does not continue the burst."""
    lengths = arrivals.payload_lengths
    expected = np.zeros((len(words) - 1, HEADER_WORDS), dtype=np.uint64)
    expected[:, 0] = expected[:, 2] = 1
    expected[:, 5] = lengths[:-1]
    continues = (words[1:] - words[:-1] == expected).all(axis=1)
    continues &= np.diff(arrivals.payload_offsets) == lengths[:-1]
    continues &= arrivals.sources[1:] == arrivals.sources[:-1]
    # A short packet ends its message, so nothing of the burst may follow one; a longer one never belongs to it.
    continues &= lengths[1:] <= lengths[:-1]
    continues[1:] &= lengths[1:-1] == lengths[:-2]
    return np.flatnonzero(~continues) + 1


def expand(low: int, *, near: int) -> int:
    """Return the integer closest to `near` whose low 32 bits are `low`: undoes the truncation of a sequence."""
    value = (near & ~0xFFFFFFFF) | low
    if value - near > 1 << 31 and value >= 1 << 32:
        return value - (1 << 32)
    return value + (1 << 32) if near - value > 1 << 31 else value
