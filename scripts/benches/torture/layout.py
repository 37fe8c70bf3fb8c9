"""The layout of a run: its files, the guard bytes in them, and the numbers of connections.

Memory that peers write to or read from is a file, mapped by the worker, so that the controller can check all of it
after the worker has ended for any reason. There are guard bytes between and around the registered ranges.

The number of a connection identifies its sender: sender (5 bits), its incarnation (4 bits), and the connection
(6 bits). Replies over a connection have the number with REPLY set.
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
"""End of a target, reserved for writes that exceed the range by one byte: the packets within may be placed."""


def connection(sender: int, *, incarnation: int, number: int) -> int:
    return sender << 10 | incarnation << 6 | number


def sender_of(connection_number: int) -> int:
    return connection_number >> 10 & 31


def incarnation_of(connection_number: int) -> int:
    return connection_number >> 6 & 15


@dataclass(frozen=True, slots=True)
class GuardedMemory:
    """A file with two registered ranges, and the pattern of its guard bytes."""

    name: str
    number: int
    """Message number of the guard pattern."""
    size_bytes: int
    ranges: tuple[tuple[int, int], ...]
    """(offset, length) of the registered ranges."""
    owner: int = CANARY

    def path(self, directory: Path) -> Path:
        return directory / self.name

    def prepare(self, out: Bytes, *, seed: int) -> None:
        fill(out[: self.size_bytes], seed, owner=self.owner, message=self.number)


def _memory(name: str, number: int, first: int, second: int, *, owner: int = CANARY) -> GuardedMemory:
    ranges = ((GUARD_BYTES, first), (2 * GUARD_BYTES + first, second))
    return GuardedMemory(name, number, 3 * GUARD_BYTES + first + second, ranges, owner)


def target(sender: int, *, incarnation: int, receiver_incarnation: int, size_bytes: int) -> GuardedMemory:
    """Return the write target of an incarnation of a sender, at an incarnation of the receiver."""
    number = 1 << 16 | sender << 10 | incarnation << 6 | receiver_incarnation
    return _memory(f"target.{sender}.{incarnation}.{receiver_incarnation}", number, size_bytes, size_bytes // 4)


def reads(sender: int, *, incarnation: int, size_bytes: int) -> GuardedMemory:
    """Return the memory that the reads of an incarnation of a sender land in."""
    return _memory(
        f"reads.{sender}.{incarnation}", 2 << 16 | sender << 10 | incarnation << 6, size_bytes, size_bytes // 4
    )


def source(receiver_incarnation: int, *, size_bytes: int) -> GuardedMemory:
    """Return the memory that all senders may read, at an incarnation of the receiver."""
    return _memory(f"source.{receiver_incarnation}", receiver_incarnation, size_bytes, size_bytes // 4, owner=SOURCE)


def journal_name(worker: int, *, incarnation: int) -> str:
    """Return the name of the journal of an incarnation of a sender, or of the receiver (0)."""
    return f"worker.{worker}.{incarnation}.jsonl"


ATTACK: Final = "attack.jsonl"
"""The journal of attackers that send in slices."""
OVERHEARD: Final = "overheard.json"
"""What whoever sees their packets knows of the honest peers, for attackers that were let in: see `liar.Overheard`."""


def target_bytes(giant_bytes: int) -> int:
    """Return the size of the write target of a sender, whose longest message has `giant_bytes`."""
    return max(TARGET_BYTES, giant_bytes + FLAWED_BYTES)
