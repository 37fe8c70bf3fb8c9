"""The byte layout of data packets, and what all packets share. With `control` the implementation of `srd/PROTOCOL.md`.

Rules.
1. Everything is in network byte order. Every packet starts with the same 16 bytes: version, type, flags, path,
   path sequence, and the context id that the *receiver* of the packet chose (0 while it is unknown).
2. A data packet is a fixed header of 56 bytes and payload. A burst's headers are one structured array, and as seven
   big-endian 64-bit words a header they differ from one packet of the burst to the next by one constant vector (see
   `header_steps`): that is how they are written, and how a receiver finds the bursts in what arrived.
3. Everything else is a control packet: see `control`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
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

_DATA_WORD = VERSION << 56 | PacketType.DATA << 48
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


@lru_cache(maxsize=256)
def header_steps(segment_bytes: int) -> Words:
    """Return row i: what header i of a burst adds, word by word, to the first: path sequence, PSN and offset grow."""
    return _INDEX * np.array([1, 0, 1, 0, 0, segment_bytes, 0], dtype=np.uint64)


def write_headers(burst: Burst, *, out: Words) -> None:
    """Write the burst's headers to `out`: rows of big-endian words (see `words_of`), at least `burst.count`."""
    first = [
        _DATA_WORD | burst.path << 32 | (burst.path_sequence & 0xFFFFFFFF),
        burst.context,
        burst.psn,
        burst.sent_us << 32 | burst.message,
        burst.length << 32 | burst.immediate,
        burst.offset,
        burst.key,
    ]
    if burst.count == 1:
        out[0] = first  # half the time of the expression below, and a small window sends little else
    else:
        # All headers at once, byte-swapped on the way out.
        row = np.array(first, dtype=np.uint64)
        np.add(row, header_steps(burst.segment_bytes)[: burst.count], out=out[: burst.count], casting="unsafe")


def words_of(headers: npt.NDArray[np.void]) -> Words:
    """Return a view of a contiguous HEADER array as big-endian 64-bit words, one row a header."""
    return headers.view(">u8").reshape(*headers.shape, HEADER_WORDS)


@dataclass(slots=True)
class Arrival:
    """One datagram, or the series of equal ones (but for the last) that the kernel joined into one (GRO).

    A series comes from one address over one path; its payloads lie back to back.
    """

    words: Words
    """Headers as big-endian words, one row a packet; rows from `count` on mean nothing."""
    count: int
    payload_offset: int
    """Where the first payload landed, as an offset into the receive region."""
    payload_bytes: int
    """Of all packets together."""
    segment_bytes: int
    """Of each packet but the last."""
    address: Address
    received_at: float
    """When the kernel received it, on the clock of `now`."""


@dataclass(slots=True)
class Run:
    """Packets of one burst that arrived together and lie back to back: the unit in which the receiver thinks."""

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


def runs_untrusted(arrival: Arrival) -> list[Run]:
    """Cut a series into runs: nearly always it is one. Packets of another version or type are dropped."""
    if arrival.count == 1:
        ends = [1]
    else:
        words = arrival.words[: arrival.count].astype(np.uint64)
        # Neighbours belong to one burst if their headers differ by exactly the burst's step.
        continues = (words[1:] - words[:-1] == header_steps(arrival.segment_bytes)[1]).all(axis=1)
        ends = [*(np.flatnonzero(~continues) + 1).tolist(), arrival.count]
    runs: list[Run] = []
    start = 0
    for end in ends:
        kind, context, psn, stamp, size, offset, key = arrival.words[start].tolist()
        if kind >> 48 == _DATA_WORD >> 48:
            skipped = start * arrival.segment_bytes
            payload_bytes = min(end * arrival.segment_bytes, arrival.payload_bytes) - skipped
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
                    payload_offset=arrival.payload_offset + skipped,
                    payload_bytes=payload_bytes,
                    segment_bytes=arrival.segment_bytes,
                    address=arrival.address,
                    received_at=arrival.received_at,
                )
            )
        start = end
    return runs


def expand(low: int, *, near: int) -> int:
    """Return the integer closest to `near` whose low 32 bits are `low`: undoes the truncation of a sequence."""
    value = (near & ~0xFFFFFFFF) | low
    if value - near > 1 << 31 and value >= 1 << 32:
        return value - (1 << 32)
    return value + (1 << 32) if near - value > 1 << 31 else value
