"""Blocks of one volume on one server: a sparse file of data beside a file of entries, and a log before both.

A write is `append`ed to the log, the log is synchronised, and the write is `apply`ed: in this order a block on the disk
is whole, or the log has all of it. Nothing here waits but for the disk; who calls decides when to synchronise.

A block that becomes absent, because a newer version was decided that another replica has, keeps the data that it had
until it is given the newer one. A third file (`kept`) has the entries of that data: if the other replica is lost before
anybody was given what it had, the older version is all that there is. An entry there that is ABSENT: this replica once
had more than it has now, so that it has no say.
"""

from __future__ import annotations

import errno
import hashlib
from typing import Final

import numpy as np
import numpy.typing as npt

from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.errors import VolumeError
from nitro_emu.ebs.server.disk import Disk, DiskFile
from nitro_emu.ebs.server.entries import ENTRY_BYTES, EXTENT_BLOCKS, BlockKind, Entries, runs
from nitro_emu.ebs.server.wal import LOG_BYTES, Appended, Wal, WalRecord, checksums

DIGEST_BYTES: Final = 8
MAX_KEPT_DIGESTS: Final = 1 << 18
"""Of 1 TiB, in 40 MB: a volume may be 64 TiB, whose writer asks for all when it attaches."""


class AbsentError(VolumeError):
    """A block that this replica does not have, or has no more: its checksum is wrong."""

    def __init__(self, block: int, *, is_corrupt: bool) -> None:
        super().__init__(f"block {block} is {'corrupt' if is_corrupt else 'absent'}")
        self.block = block
        self.is_corrupt = is_corrupt


class StoreError(VolumeError):
    """The disk has failed; `errno_value` says how. Nothing is written any more before the server is started again."""

    def __init__(self, error: OSError) -> None:
        self.errno_value = error.errno or errno.EIO
        super().__init__(f"the disk has failed ({error.strerror}); mend it, and start the server again")


Bools = npt.NDArray[np.bool_]


def _takes(record: WalRecord, old: Entries, *, is_again: bool) -> Bools:
    """Return which blocks a record changes; see `BlockStore._place`."""
    if record.kind is BlockKind.ABSENT and not record.forces_before:  # what it had of this version is lost
        is_of_it: Bools = old.version == record.version
        return is_of_it
    takes: Bools = old.version < record.version
    if is_again or record.kind is BlockKind.ABSENT:
        takes |= old.version == record.version
    else:
        takes |= (old.version == record.version) & (old.kind == BlockKind.ABSENT)
    if record.forces_before:
        takes |= (old.version >> np.uint64(40)) < record.forces_before
    return takes


class BlockStore:
    """The blocks of one volume. Raises VolumeError if its log is corrupt, StoreError if its disk fails."""

    def __init__(self, disk: Disk, *, size_bytes: int, log_bytes: int = LOG_BYTES) -> None:
        self.blocks = size_bytes // BLOCK_BYTES
        self.extents = -(-self.blocks // EXTENT_BLOCKS)
        self.failure: StoreError | None = None
        self._digests: dict[int, bytes] = {}
        self._kept_is_dirty = False
        try:
            self._data = disk.open("data", size_bytes=size_bytes)
            self._entries = disk.open("entries", size_bytes=self.extents * EXTENT_BLOCKS * ENTRY_BYTES)
            self._kept = disk.open("kept", size_bytes=self.extents * EXTENT_BLOCKS * ENTRY_BYTES)
            self._wal = Wal(disk, log_bytes=log_bytes)
            for record, data in self._wal.replay():
                self._place(record, memoryview(data), is_again=True)
            for file in self.to_checkpoint():
                file.sync()
            self._wal.begin()
        except OSError as error:
            raise StoreError(error) from error

    # -- writes -------------------------------------------------------------------------------------------------------

    def append(self, record: WalRecord, data: memoryview) -> Appended:
        """Put a write into the log. Raises StoreError; if the disk is full, it goes on without this write."""
        self._check()
        try:
            return self._wal.append(record, data)
        except OSError as error:
            raise self._failed(error) if error.errno != errno.ENOSPC else StoreError(error) from error

    def to_sync(self) -> tuple[list[DiskFile], int]:
        """Return the files to be synchronised, in any thread, and what `synced` is to be told then."""
        files, number = self._wal.to_sync()
        if self._kept_is_dirty:
            files, self._kept_is_dirty = [self._kept, *files], False
        return files, number

    def synced(self, number: int) -> None:
        """Note that the log is on the disk up to this number. Raises StoreError after a failure."""
        self._check()
        self._wal.synced(number)

    def sync_failed(self, error: OSError) -> StoreError:
        """Stop: it is not known what is on the disk."""
        return self._failed(error)

    def apply(self, appended: Appended, record: WalRecord, data: memoryview) -> None:
        """Put a write that is in the log, on the disk, where it is read from. Raises StoreError."""
        self._check()
        try:
            self._place(record, data, is_again=False)
        except OSError as error:
            raise self._failed(error) from error
        self._wal.applied(appended)

    def _place(self, record: WalRecord, data: memoryview, *, is_again: bool) -> None:
        """Give the blocks that are older than the record its version.

        `is_again`: their entries may be on the disk already, and their data not.
        """
        old = self._read_entries(record.first_block, count=record.count)
        takes = _takes(record, old, is_again=is_again)
        if record.kind is BlockKind.ABSENT:
            self._keep(record, old, takes)
        elif (is_absent := old.kind == BlockKind.ABSENT).any():
            self._place_beside(record, data, is_absent & ~takes, is_again=is_again)
        if not takes.any():
            return
        new = Entries.alike(record.count, version=record.version, kind=record.kind)
        if record.kind is BlockKind.DATA:
            new.crc[:] = record.crcs
        for first, end in runs(takes):
            block = record.first_block + first
            if record.kind is BlockKind.DATA:
                self._data.write([data[first * BLOCK_BYTES : end * BLOCK_BYTES]], offset=block * BLOCK_BYTES)
            part = Entries(new.version[first:end], new.crc[first:end], new.kind[first:end])
            self._entries.write([part.encode(first_block=block)], offset=block * ENTRY_BYTES)
            if record.kind is BlockKind.HOLE:
                self._data.punch(block * BLOCK_BYTES, length_bytes=(end - first) * BLOCK_BYTES)
        for extent in range(
            record.first_block // EXTENT_BLOCKS, -(-(record.first_block + record.count) // EXTENT_BLOCKS)
        ):
            self._digests.pop(extent, None)

    # -- what absent blocks had ---------------------------------------------------------------------------------------

    def keep(self, record: WalRecord) -> None:
        """Note what blocks have, before the record that makes them absent is appended. Raises StoreError."""
        self._check()
        try:
            old = self._read_entries(record.first_block, count=record.count)
            self._keep(record, old, _takes(record, old, is_again=False))
        except OSError as error:
            raise self._failed(error) from error

    def _keep(self, record: WalRecord, old: Entries, takes: Bools) -> None:
        """Note what is known of the data of blocks that become absent."""
        if record.forces_before:
            kept, changes = old, takes & (old.kind != BlockKind.ABSENT)
        else:
            kept, changes = Entries.alike(record.count, version=record.version, kind=BlockKind.ABSENT), takes
        self._write_kept(record.first_block, kept, changes)

    def _place_beside(self, record: WalRecord, data: memoryview, these: Bools, *, is_again: bool) -> None:
        """Give absent blocks, whose decided version is a newer one, the data of a write that they do not have yet."""
        kept = self._read_entries(record.first_block, count=record.count, file=self._kept)
        these = these & (kept.kind != BlockKind.ABSENT)
        these &= (kept.version <= record.version) if is_again else (kept.version < record.version)
        new = Entries.alike(record.count, version=record.version, kind=record.kind)
        if record.kind is BlockKind.DATA:
            new.crc[:] = record.crcs
            for first, end in runs(these):
                at = (record.first_block + first) * BLOCK_BYTES
                self._data.write([data[first * BLOCK_BYTES : end * BLOCK_BYTES]], offset=at)
        self._write_kept(record.first_block, new, these)

    def _write_kept(self, first_block: int, entries: Entries, these: Bools) -> None:
        for first, end in runs(these):
            part = Entries(entries.version[first:end], entries.crc[first:end], entries.kind[first:end])
            self._kept.write([part.encode(first_block=first_block + first)], offset=(first_block + first) * ENTRY_BYTES)
            self._kept_is_dirty = True

    def held(self, first_block: int, *, count: int) -> Entries:
        """Return which data there is of blocks, also of absent ones; ABSENT: that is not known. Raises StoreError."""
        self._check()
        try:
            entries = self._read_entries(first_block, count=count)
            kept = self._read_entries(first_block, count=count, file=self._kept)
        except OSError as error:
            raise self._failed(error) from error
        is_absent = entries.kind == BlockKind.ABSENT
        return Entries(
            np.where(is_absent, kept.version, entries.version),
            np.where(is_absent, kept.crc, entries.crc),
            np.where(is_absent, kept.kind, entries.kind),
        )

    def held_data(self, first_block: int, *, count: int, version: int) -> bytes:
        """Return the data that blocks have of a version. Raises AbsentError, StoreError."""
        held = self.held(first_block, count=count)
        data = bytearray(count * BLOCK_BYTES)
        try:
            self._data.read(memoryview(data), offset=first_block * BLOCK_BYTES)
        except OSError as error:
            raise self._failed(error) from error
        for at, found in enumerate(checksums(memoryview(data))):
            if held.kind[at] != BlockKind.DATA or held.version[at] != version:
                raise AbsentError(first_block + at, is_corrupt=False)
            if held.crc[at] != found:
                raise AbsentError(first_block + at, is_corrupt=True)
        return bytes(data)

    # -- checkpoints --------------------------------------------------------------------------------------------------

    @property
    def wants_checkpoint(self) -> bool:
        """Whether a checkpoint would free a log."""
        return self.failure is None and self._wal.wants_checkpoint

    def to_checkpoint(self) -> list[DiskFile]:
        """Return the files to be synchronised, in any thread, before `checkpointed`."""
        return [self._data, self._entries, self._kept]

    def checkpointed(self) -> None:
        """Note that a checkpoint has succeeded that began when it was wanted. Raises StoreError."""
        try:
            self._wal.checkpointed()
        except OSError as error:
            raise self._failed(error) from error

    # -- reads --------------------------------------------------------------------------------------------------------

    def read(self, first_block: int, *, into: memoryview, version: int = 0) -> bool:
        """Read blocks, whose checksums are right. Raises AbsentError, StoreError.

        With a version: only if all of them are of it; return whether they are.
        """
        self._check()
        count = len(into) // BLOCK_BYTES
        try:
            entries = self._read_entries(first_block, count=count)
            if version and (entries.version != version).any():
                return False
            if (absent := np.flatnonzero(entries.kind == BlockKind.ABSENT)).size:
                block = first_block + int(absent[0])
                self._digests.pop(block // EXTENT_BLOCKS, None)  # of before, if it is the entry that is corrupt
                raise AbsentError(block, is_corrupt=False)
            if (has_data := entries.kind == BlockKind.DATA).any():
                self._data.read(into, offset=first_block * BLOCK_BYTES)
        except OSError as error:
            raise self._failed(error) from error
        found = checksums(into)
        for at, crc in enumerate(entries.crc.tolist()):
            if not has_data[at]:
                into[at * BLOCK_BYTES : (at + 1) * BLOCK_BYTES] = bytes(BLOCK_BYTES)
            elif found[at] != crc:
                raise AbsentError(first_block + at, is_corrupt=True)
        return True

    def entries(self, first_block: int, *, count: int) -> Entries:
        """Return what is known of blocks. Raises StoreError."""
        self._check()
        try:
            return self._read_entries(first_block, count=count)
        except OSError as error:
            raise self._failed(error) from error

    def digest(self, extent: int) -> bytes:
        """Return a digest of an extent's blocks: versions, what is absent; odd if any is. Raises StoreError."""
        if (known := self._digests.get(extent)) is None:
            first = extent * EXTENT_BLOCKS
            entries = self.entries(first, count=EXTENT_BLOCKS)
            is_absent = entries.kind == BlockKind.ABSENT
            content = hashlib.blake2b(entries.version.tobytes() + is_absent.tobytes(), digest_size=DIGEST_BYTES)
            number = int.from_bytes(content.digest()) & ~1 | bool(is_absent.any())
            if len(self._digests) >= MAX_KEPT_DIGESTS:
                self._digests.clear()
            known = self._digests[extent] = number.to_bytes(DIGEST_BYTES)
        return known

    def lost(self, block: int) -> WalRecord:
        """Return the record that has a corrupt block be known as absent: it is repaired, and not read before."""
        version = int(self.entries(block, count=1).version[0])
        return WalRecord(BlockKind.ABSENT, version, block, 1)

    def _read_entries(self, first_block: int, *, count: int, file: DiskFile | None = None) -> Entries:
        raw = bytearray(count * ENTRY_BYTES)
        (file or self._entries).read(memoryview(raw), offset=first_block * ENTRY_BYTES)
        return Entries.decode_untrusted(raw, first_block=first_block)

    def close(self) -> None:
        """Close the files."""
        for file in (self._data, self._entries, self._kept, self._wal):
            file.close()

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _failed(self, error: OSError) -> StoreError:
        self.failure = self.failure or StoreError(error)
        return self.failure
