"""The layout of a run: its files, the guard bytes in them, and the numbers of connections.

Memory that peers write to or read from is a file, mapped by the worker, so that the controller can check all of it
after the worker has ended for any reason. There are guard bytes between and around the registered ranges.

A connection's number identifies the process that made it: sender (5 bits), its incarnation (4 bits), and the connection
in it (6 bits). Replies over a connection have the number with REPLY set.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scripts.benches.torture.pattern import CANARY, SOURCE, Bytes, fill

REPLY: Final = 0x8000
GUARD_BYTES: Final = 4096 + 24
MAX_CONNECTIONS: Final = 64
TARGET_BYTES: Final = 12 << 20
READS_BYTES: Final = 12 << 20
SOURCE_BYTES: Final = 4 << 20
FLAWED_BYTES: Final = 128 << 10
"""At the end of what may be written to: where writes land of which only the last packet goes too far."""


def connection(sender: int, *, incarnation: int, number: int) -> int:
    """Return the number of a sender's connection."""
    return sender << 10 | incarnation << 6 | number


def sender_of(who: int) -> int:
    """Return the sender that a connection (or what is sent back over it) belongs to."""
    return who >> 10 & 31


def incarnation_of(who: int) -> int:
    """Return the incarnation of the sender's process that made the connection."""
    return who >> 6 & 15


@dataclass(frozen=True, slots=True)
class Memory:
    """A file with two ranges that are registered, and what its untouched bytes are."""

    name: str
    number: int
    """Of its guard bytes' pattern."""
    size_bytes: int
    ranges: tuple[tuple[int, int], ...]
    """(offset, length) of what is registered."""
    owner: int = CANARY

    def path(self, directory: Path) -> Path:
        """Where it is."""
        return directory / self.name

    def prepare(self, out: Bytes, *, seed: int) -> None:
        """Fill it with the pattern that must stay as it is."""
        fill(out[: self.size_bytes], seed, who=self.owner, message=self.number)


def _memory(name: str, number: int, first: int, second: int, *, owner: int = CANARY) -> Memory:
    ranges = ((GUARD_BYTES, first), (2 * GUARD_BYTES + first, second))
    return Memory(name, number, 3 * GUARD_BYTES + first + second, ranges, owner)


def target(sender: int, *, incarnation: int, receiver_incarnation: int, size_bytes: int) -> Memory:
    """What an incarnation of a sender may write to, in an incarnation of the receiver."""
    number = 1 << 16 | sender << 10 | incarnation << 6 | receiver_incarnation
    return _memory(f"target.{sender}.{incarnation}.{receiver_incarnation}", number, size_bytes, size_bytes // 4)


def reads(sender: int, *, incarnation: int, size_bytes: int) -> Memory:
    """Where an incarnation of a sender has its reads land."""
    return _memory(
        f"reads.{sender}.{incarnation}", 2 << 16 | sender << 10 | incarnation << 6, size_bytes, size_bytes // 4
    )


def source(receiver_incarnation: int, *, size_bytes: int) -> Memory:
    """What all may read, in an incarnation of the receiver."""
    return _memory(f"source.{receiver_incarnation}", receiver_incarnation, size_bytes, size_bytes // 4, owner=SOURCE)


def journal_name(who: int, *, incarnation: int) -> str:
    """Return the name of the journal of an incarnation of a sender, or of the receiver (0)."""
    return f"worker.{who}.{incarnation}.jsonl"


def target_bytes(giant_bytes: int) -> int:
    """Return how much a sender may write to, of whom one message may have this length."""
    return max(TARGET_BYTES, giant_bytes + FLAWED_BYTES)
