"""Bytes that identify their position: a function of (seed, sender, message, offset).

A message is a sequence of 64-bit lanes. The first lane is a bijective mix of (magic, owner, message) under the seed;
each lane adds an odd constant to the previous one. So any eight bytes, at any alignment, differ from those at any other
offset of any other message, and `explain` identifies the origin of wrong bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from srd.proto.wire.data import VERSION, PacketType

Bytes = npt.NDArray[np.uint8]
Lanes = npt.NDArray[np.uint64]

LANE_BYTES: Final = 8
PIECE_BYTES: Final = 1 << 20
"""Bytes compared at once: they fit into the CPU cache."""
CANARY: Final = 0xFFFE
"""Owner of guard bytes; `message` is the file's number."""
SOURCE: Final = 0xFFFD
"""Owner of the memory that READs are served from."""
POISON: Final = 0xFFFC
"""Owner of the bytes that overwrite the memory of completed requests."""

_MASK: Final = (1 << 64) - 1
_STEP: Final = 0x9E3779B97F4A7C15
_MAGIC: Final = 0x5EAF
_FACTORS: Final = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
"""Of splitmix64's finaliser; with their inverses modulo 2^64 it can be undone."""
_INVERSES: Final = tuple(pow(factor, -1, 1 << 64) for factor in _FACTORS)
_SEARCHED_LANES: Final = 1 << 22
"""`explain` searches the first 32 MiB of a message."""
_PLAUSIBLE_MESSAGES: Final = 1 << 18
"""Maximum number of messages of a connection; larger numbers are chance matches of the magic."""
_DATA_HEADER: Final = bytes([VERSION, PacketType.DATA])


@dataclass(frozen=True, slots=True)
class Mismatch:
    first: int
    """Offset of the first wrong byte in the message."""
    last: int
    count: int
    expected: str
    actual: str
    """Sixteen bytes from the first on, in hexadecimal."""
    origin: str
    """The origin of the wrong bytes, if it can be identified."""

    def __str__(self) -> str:
        return (
            f"bytes {self.first} to {self.last} ({self.count} of them wrong): expected {self.expected}, "
            f"found {self.actual} ({self.origin})"
        )


def _mix(value: int) -> int:
    value ^= value >> 30
    value = value * _FACTORS[0] & _MASK
    value ^= value >> 27
    value = value * _FACTORS[1] & _MASK
    return value ^ value >> 31


def _unmix(lanes: Lanes) -> Lanes:
    lanes = lanes ^ lanes >> np.uint64(31) ^ lanes >> np.uint64(62)
    lanes = lanes * np.uint64(_INVERSES[1])
    lanes = lanes ^ lanes >> np.uint64(27) ^ lanes >> np.uint64(54)
    lanes = lanes * np.uint64(_INVERSES[0])
    found: Lanes = lanes ^ lanes >> np.uint64(30) ^ lanes >> np.uint64(60)
    return found


def first_lane(seed: int, *, owner: int, message: int) -> int:
    return _mix((_MAGIC << 48 | owner << 32 | message) ^ _mix(seed + 1 & _MASK))


def owners(seed: int, lanes: Lanes) -> tuple[npt.NDArray[np.bool_], Lanes, Lanes]:
    """Decode first lanes: return which are valid, their owners, and their messages."""
    found = _unmix(lanes) ^ np.uint64(_mix(seed + 1 & _MASK))
    return (
        found >> np.uint64(48) == np.uint64(_MAGIC),
        found >> np.uint64(32) & np.uint64(0xFFFF),
        found & np.uint64(0xFFFFFFFF),
    )


@lru_cache(maxsize=1)
def _steps() -> Lanes:
    return np.arange(PIECE_BYTES // LANE_BYTES + 2, dtype=np.uint64) * np.uint64(_STEP)


def expected(seed: int, *, owner: int, message: int, offset: int, length: int) -> Bytes:
    """Return `length` bytes (a piece at most) of a message from `offset`."""
    lane, skipped = divmod(offset, LANE_BYTES)
    first = first_lane(seed, owner=owner, message=message) + lane * _STEP & _MASK
    count = -(-(skipped + length) // LANE_BYTES)
    lanes = _steps()[:count] + np.array(first, np.uint64)
    return lanes.view(np.uint8)[skipped : skipped + length]


def fill(out: Bytes, seed: int, *, owner: int, message: int) -> None:
    for at in range(0, len(out), PIECE_BYTES):
        piece = out[at : at + PIECE_BYTES]
        piece[:] = expected(seed, owner=owner, message=message, offset=at, length=len(piece))


def check(found: Bytes, seed: int, *, owner: int, message: int, offset: int = 0) -> Mismatch | None:
    """Compare bytes with those of a message from `offset`; return None if they are equal."""
    first = last = -1
    count = 0
    for at in range(0, len(found), PIECE_BYTES):
        piece = found[at : at + PIECE_BYTES]
        wrong = piece != expected(seed, owner=owner, message=message, offset=offset + at, length=len(piece))
        if wrong.any():
            offsets = np.flatnonzero(wrong)
            first = at + int(offsets[0]) if first < 0 else first
            last = at + int(offsets[-1])
            count += len(offsets)
    if not count:
        return None
    wanted = expected(seed, owner=owner, message=message, offset=offset + first, length=min(16, len(found) - first))
    return Mismatch(
        offset + first,
        offset + last,
        count,
        wanted.tobytes().hex(),
        found[first : first + 16].tobytes().hex(),
        explain(found[first : last + 1], seed),
    )


def identify_owner(found: Bytes, seed: int) -> tuple[int, int] | None:
    """Return (owner, message) from the first lane of a message; None if it is too short or not valid."""
    if len(found) < LANE_BYTES:
        return None
    good, owner, message = owners(seed, np.frombuffer(found[:LANE_BYTES].tobytes(), np.uint64))
    return (int(owner[0]), int(message[0])) if good[0] else None


def explain(found: Bytes, seed: int) -> str:
    """Return the origin of bytes: message and offset, a packet's header, one value, or unknown."""
    data = found[:4096].tobytes()
    if not data.strip(data[:1]):
        return f"{len(found)} bytes of {data[0]:#04x}" if len(found) <= len(data) else f"bytes of {data[0]:#04x}"
    if (header := data[:64].find(_DATA_HEADER)) >= 0:
        return f"a data packet's header, {header} bytes on"
    for start in range(min(len(data) - 2 * LANE_BYTES, 256) + 1):
        pair = np.frombuffer(data[start : start + 2 * LANE_BYTES], np.uint64)
        if (int(pair[0]) + _STEP) & _MASK == int(pair[1]):
            before = f", {start} other bytes before it" if start else ""
            return _locate(seed, int(pair[0])) + before
    return "bytes of no message" if len(found) > 2 * LANE_BYTES else "too few bytes to identify"


def _locate(seed: int, lane: int) -> str:
    """Return the message, and the offset in it, that a lane comes from."""
    for base in range(0, _SEARCHED_LANES, len(_steps())):
        back = np.array((lane - base * _STEP) & _MASK, np.uint64) - _steps()
        good, owner, message = owners(seed, back)
        good &= (message < np.uint64(_PLAUSIBLE_MESSAGES)) & (
            (owner < np.uint64(0xC000)) | (owner >= np.uint64(POISON))
        )
        if good.any():
            at = int(np.flatnonzero(good)[0])
            return f"offset {(base + at) * LANE_BYTES} of {describe_owner(int(owner[at]), int(message[at]))}"
    return "a message beyond its first 32 MiB, or of another scenario"


def describe_owner(owner: int, message: int) -> str:
    if owner == CANARY:
        return f"the guard bytes of file {message}"
    if owner == SOURCE:
        return f"the memory {message} that is read from"
    if owner == POISON:
        return f"memory of message {message} that had ended"
    return f"message {message} of connection {owner}"
