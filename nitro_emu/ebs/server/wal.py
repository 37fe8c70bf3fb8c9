"""The write-ahead log: what makes a write whole. One format, in two files that take turns.

    file    header: magic, CRC, generation, the first record number that is needed     then records, from 64 on
    record  magic, CRC of the rest and of the checksums, generation, number, highest number known to be on the disk,
            version, first block, epoch that forces, kind, count; a CRC32C per block; the blocks

Theory of operation. A record is appended, synchronised, and then applied to the store; both files are synchronised if
both have what is not. When a file is longer than LOG_BYTES, records go to the other one. When all records of the first
are applied and the store is synchronised (a checkpoint), it may be overwritten, once the other one's header says so. A
record of an earlier generation is never taken for one of the file. Records may be replayed any number of times.

A record that is torn was not acknowledged, unless a later one says that its number was on the disk: then the disk has
lost what it had promised, and the store is not opened.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import crc32c
import numpy as np

from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.errors import VolumeError
from nitro_emu.ebs.server.disk import Disk, DiskFile
from nitro_emu.ebs.server.entries import BlockKind

LOG_BYTES: Final = 32 << 20
"""Of a file before the other one's turn: what a start reads again is twice that, a fraction of a second."""

MAX_BLOCKS: Final = 256
"""Blocks with data of one record: 1 MiB."""

_FILE_MAGIC: Final = b"VLOG"
_FILE: Final = struct.Struct("<4sIQQ")
_FIRST_OFFSET: Final = 64
_MAGIC: Final = b"VREC"
_RECORD: Final = struct.Struct("<4sIQQQQQQII")
_CRC_END: Final = 8
"""Bytes of a header before what its CRC covers."""


@dataclass(frozen=True, slots=True)
class WalRecord:
    """What is to become of consecutive blocks."""

    kind: BlockKind
    version: int
    first_block: int
    count: int
    forces_before: int = 0
    """Replaces any block of an epoch before this one, also a newer one; 0: newer blocks stay."""
    crcs: tuple[int, ...] = ()
    """Of each block, if it is DATA."""


def checksums(data: memoryview | bytes) -> tuple[int, ...]:
    """Return the CRC32C of each block."""
    view = memoryview(data)
    return tuple(crc32c.crc32c(view[at : at + BLOCK_BYTES]) for at in range(0, len(view), BLOCK_BYTES))


@dataclass(slots=True)
class _LogFile:
    file: DiskFile
    generation: int = 0
    needed_from: int = 1
    first_number: int = 1
    end: int = _FIRST_OFFSET
    unapplied: int = 0
    is_free: bool = True
    is_dirty: bool = False


@dataclass(frozen=True, slots=True)
class Appended:
    """A record in the log."""

    number: int
    log: _LogFile


class Wal:
    """The log of one store. `replay` it first."""

    def __init__(self, disk: Disk, *, log_bytes: int = LOG_BYTES) -> None:
        self._files = [_LogFile(disk.open(f"log.{turn}")) for turn in (0, 1)]
        self._log_bytes = log_bytes
        self._turn = 0
        self._appended = 0
        self._synced = 0
        self._is_new = True  # the file of this turn has no header yet
        self._frees = 0  # 1: the other file is free after the next synchronisation, 2: after this one

    # -- at the start -------------------------------------------------------------------------------------------------

    def replay(self) -> Iterator[tuple[WalRecord, bytes]]:
        """Yield the records that are whole, in order. Raises VolumeError if one is missing that was acknowledged."""
        found: dict[int, tuple[WalRecord, bytes]] = {}
        promised, needed_from = 0, 1
        for log in sorted(self._files, key=_read_header):
            for number, synced, record, data in _whole_records(log):
                found[number] = (record, data)
                promised = max(promised, synced)
            if log.generation:
                needed_from = log.needed_from
        lost = [number for number in range(needed_from, promised + 1) if number not in found]
        if lost:
            raise VolumeError(
                f"log record {lost[0]} was acknowledged and is corrupt: remove this replica's directory, "
                "and the writer repairs it from the others"
            )
        yield from (found[number] for number in sorted(found) if number >= needed_from)
        self._appended = self._synced = max(found, default=0)

    def begin(self) -> None:
        """Take new records, now that all that `replay` has yielded is in the store, on the disk. Raises OSError."""
        newest, oldest = (1, 0) if self._files[0].generation <= self._files[1].generation else (0, 1)
        if self._files[newest].generation:
            self._let_go(self._files[newest], needed_from=self._appended + 1)
            self._files[newest].file.sync()
        self._turn = oldest
        self._begin(self._files[newest].generation + 1)

    @staticmethod
    def _let_go(log: _LogFile, *, needed_from: int) -> None:
        """Note in a file's header which records are needed; to be synchronised before another one is overwritten."""
        log.needed_from = needed_from
        log.file.write([_file_header(log)], offset=0)
        log.is_dirty = True

    def _begin(self, generation: int) -> None:
        """Take the file of this turn for new records."""
        log, other = self._files[self._turn], self._files[self._turn ^ 1]
        log.generation, log.first_number, log.end = generation, self._appended + 1, _FIRST_OFFSET
        log.needed_from = log.first_number if other.is_free else other.first_number
        log.is_free, self._is_new = False, True

    # -- records ------------------------------------------------------------------------------------------------------

    def append(self, record: WalRecord, data: memoryview) -> Appended:
        """Write a record, which is not on the disk before a `sync`. Raises OSError: it is not in the log."""
        log = self._files[self._turn]
        if log.end > self._log_bytes and self._files[self._turn ^ 1].is_free:
            self._turn ^= 1
            self._begin(log.generation + 1)
            log = self._files[self._turn]
        if self._is_new:
            log.file.write([_file_header(log)], offset=0)
            log.is_dirty, self._is_new = True, False
        number = self._appended + 1
        crcs = np.array(record.crcs, "<u4").tobytes()
        header = _record_header(record, generation=log.generation, number=number, synced=self._synced, crcs=crcs)
        log.file.write([header, crcs, data], offset=log.end)
        log.end += len(header) + len(crcs) + len(data)
        log.is_dirty = True
        log.unapplied += 1
        self._appended = number
        return Appended(number, log)

    def to_sync(self) -> tuple[list[DiskFile], int]:
        """Return which files are to be synchronised now, and the number that is on the disk afterwards: `synced`."""
        files = [log.file for log in self._files if log.is_dirty]
        for log in self._files:
            log.is_dirty = False
        self._frees *= 2
        return files, self._appended

    def synced(self, number: int) -> None:
        """Note that the records up to this number are on the disk."""
        self._synced = max(self._synced, number)
        if self._frees > 1:
            self._frees, self._files[self._turn ^ 1].is_free = 0, True

    def applied(self, appended: Appended) -> None:
        """Note that a record is in the store's files."""
        appended.log.unapplied -= 1

    @property
    def wants_checkpoint(self) -> bool:
        """Whether a file waits to be free, and all of its records are applied."""
        waiting = self._files[self._turn ^ 1]
        return not waiting.is_free and not waiting.unapplied and not self._frees

    def checkpointed(self) -> None:
        """Note that what the waiting file has is in the store, on the disk. Raises OSError."""
        log = self._files[self._turn]
        self._let_go(log, needed_from=log.first_number)
        self._frees = 1

    def close(self) -> None:
        """Close the files."""
        for log in self._files:
            log.file.close()


def _file_header(log: _LogFile) -> bytes:
    rest = _FILE.pack(_FILE_MAGIC, 0, log.generation, log.needed_from)[_CRC_END:]
    return _FILE.pack(_FILE_MAGIC, crc32c.crc32c(rest), log.generation, log.needed_from)


def _read_header(log: _LogFile) -> int:
    """Read a file's header into `log`; return its generation, 0 for a file without one."""
    raw = bytearray(_FILE.size)
    log.file.read(memoryview(raw), offset=0)
    magic, crc, generation, needed_from = _FILE.unpack(raw)
    if magic == _FILE_MAGIC and crc == crc32c.crc32c(raw[_CRC_END:]):
        log.generation, log.needed_from = generation, needed_from
    return log.generation


def _record_header(record: WalRecord, *, generation: int, number: int, synced: int, crcs: bytes) -> bytes:
    fields = (
        generation, number, synced, record.version, record.first_block, record.forces_before,
        record.kind.value, record.count,
    )  # fmt: skip
    rest = _RECORD.pack(_MAGIC, 0, *fields)[_CRC_END:]
    return _RECORD.pack(_MAGIC, crc32c.crc32c(crcs, crc32c.crc32c(rest)), *fields)


def _whole_records(log: _LogFile) -> Iterator[tuple[int, int, WalRecord, bytes]]:
    """Yield number, highest number on the disk, record and data of each record of the file's generation."""
    if not log.generation:
        return
    raw = bytearray(log.file.size_bytes())
    log.file.read(memoryview(raw), offset=0)
    at = _FIRST_OFFSET
    while (at := raw.find(_MAGIC, at)) >= 0:
        parsed = _parse(raw, at=at, generation=log.generation)
        if parsed is None:
            at += 1
            continue
        number, synced, record, start = parsed
        at = start + (record.count * BLOCK_BYTES if record.kind is BlockKind.DATA else 0)
        data = bytes(raw[start:at])
        if checksums(data) == record.crcs:
            yield number, synced, record, data


def _parse(raw: bytearray, *, at: int, generation: int) -> tuple[int, int, WalRecord, int] | None:
    """Return number, highest number on the disk, record, and where its data begins; None: there is no whole header."""
    if at + _RECORD.size > len(raw):
        return None
    _, crc, found, number, synced, version, first_block, forces_before, kind, count = _RECORD.unpack_from(raw, at)
    if found != generation or kind > max(BlockKind) or (kind == BlockKind.DATA and count > MAX_BLOCKS):
        return None
    crcs_at = at + _RECORD.size
    start = crcs_at + (4 * count if kind == BlockKind.DATA else 0)
    if crc32c.crc32c(raw[crcs_at:start], crc32c.crc32c(raw[at + _CRC_END : crcs_at])) != crc:
        return None
    crcs = tuple(np.frombuffer(raw, "<u4", count if kind == BlockKind.DATA else 0, crcs_at).tolist())
    return number, synced, WalRecord(BlockKind(kind), version, first_block, count, forces_before, crcs), start
