"""What is known of each block: an entry of 16 bytes.

    version u64   which write it holds: the writer's epoch, and the number of the write within it; 0: none
    crc     u32   CRC32C of its 4,096 bytes, if it has data
    check   u32   of all that and the block's number; its two lowest bits are the kind

A block that was never written has an entry of zeroes. An entry whose check is wrong says nothing: the block is ABSENT,
at version 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Self

import numpy as np
import numpy.typing as npt

ENTRY: Final = np.dtype([("version", "<u8"), ("crc", "<u4"), ("check", "<u4")])
ENTRY_BYTES: Final = ENTRY.itemsize
EXTENT_BLOCKS: Final = 1024
"""Blocks of an extent of 4 MiB: what is compared, and sent, as one."""

_EPOCH_SHIFT: Final = 40
MAX_EPOCH: Final = (1 << 24) - 1
"""16 million attachments, of 10^12 writes each."""

U64 = npt.NDArray[np.uint64]
U32 = npt.NDArray[np.uint32]


class BlockKind(IntEnum):
    """What a block is."""

    HOLE = 0
    """Nothing is allocated; it reads as zeroes."""
    DATA = 1
    ZERO = 2
    """It reads as zeroes."""
    ABSENT = 3
    """Another replica has it at this version; this one has lost it, or was away."""


def version_of(epoch: int, *, sequence: int) -> int:
    """Return the version of a write."""
    return epoch << _EPOCH_SHIFT | sequence


def epoch_of(version: int) -> int:
    """Return the epoch in which a version was written."""
    return version >> _EPOCH_SHIFT


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries of consecutive blocks, as columns."""

    version: U64
    crc: U32
    kind: U32

    @classmethod
    def decode_untrusted(cls, raw: bytes | bytearray, *, first_block: int) -> Self:
        """Return what a file, or another computer, has of the blocks from `first_block` on."""
        table = np.frombuffer(raw, ENTRY)
        version, crc, check = table["version"].astype(np.uint64), table["crc"].astype(np.uint32), table["check"]
        kind = (check & 3).astype(np.uint32)
        bad = check != _check(version, crc, kind, first_block=first_block)
        if bad.any():
            version[bad], kind[bad] = 0, BlockKind.ABSENT
        return cls(version, crc, kind)

    @classmethod
    def alike(cls, count: int, *, version: int, kind: BlockKind) -> Self:
        """Return entries without data."""
        return cls(
            np.full(count, version, np.uint64), np.zeros(count, np.uint32), np.full(count, kind.value, np.uint32)
        )

    def encode(self, *, first_block: int) -> bytes:
        """Return them as they lie in a file."""
        table = np.empty(len(self.version), ENTRY)
        table["version"], table["crc"] = self.version, self.crc
        table["check"] = _check(self.version, self.crc, self.kind, first_block=first_block)
        return table.tobytes()


def _check(version: U64, crc: U32, kind: U32, *, first_block: int) -> U32:
    """Return the checks, with the kinds in them. They mix all bits as SplitMix64 does; a CRC is a call a block."""
    block = np.arange(first_block, first_block + len(version), dtype=np.uint64)
    mixed = (version + block * np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(29)
    mixed = (mixed + crc + kind.astype(np.uint64)) * np.uint64(0x94D049BB133111EB)
    check = (mixed >> np.uint64(32)).astype(np.uint32) & np.uint32(0xFFFFFFFC) | kind
    check[(version == 0) & (kind == BlockKind.HOLE)] = 0
    return check


def runs(mask: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the runs (first, end) of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8)))
    return [(int(first), int(end)) for first, end in zip(edges[::2], edges[1::2], strict=True)]
