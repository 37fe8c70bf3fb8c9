"""The bytes of a partial file: chunks are written in any order, compared with the sender's digests, and noted.

1. A chunk that landed is hashed (xxh3) while it is in the CPU cache, and written at its offset by a gathering write.
   The sender's digest of it comes in a message of its own, before or after it. A chunk whose two digests are equal is
   verified; one that differs ends the attempt with an error that names it. A file of one chunk has its own digest only.
2. The file's digest needs the chunks in order. A chunk that arrived early is read back from the page cache when its
   turn comes, so that the digest is complete shortly after the last byte arrived.
3. The journal has what can be resumed: after its first line (leftovers.py) CHUNK_DIGEST_BYTES for each chunk, the
   digest of a verified one, else zeros or nothing. The next attempt reads chunks back, and asks for those only that
   do not have their digests any more; of what lies behind MAX_RANGES gaps it asks for all. Holes are not noted.
4. The file's blocks are allocated in large pieces ahead of what is written, which makes writing cheaper. All at once
   would take a file system in memory long, and the sender waits for it. Every WRITE_BACK_BYTES the kernel is asked to
   begin writing them to the disk, so that the sync at the end is short.
5. Of a file with holes no blocks are allocated, and of its chunks the blocks of zeros are not written. A hole that the
   sender names is hashed as zeros. What an earlier attempt left there is removed (a hole is punched) before.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from srd.file_transfer.digests import CHUNK_DIGEST_BYTES, chunk_digest, file_digest
from srd.file_transfer.errors import TransferError, TransferInterruptedError
from srd.file_transfer.protocol import MAX_RANGES, Offer

IOV_MAX: Final = 1024
"""Buffers that one pwritev accepts (limits.h)."""
_NOTES_AT_ONCE: Final = 1 << 16
"""Digests that are read from the journal by one call: 1 MiB."""
WRITE_BACK_BYTES: Final = 16 << 20
"""Small enough that the disk starts early, large enough that the calls cost nothing."""
ALLOCATE_BYTES: Final = 16 << 20
"""At once: 4 ms on a file system in memory, and few enough extents on a disk."""
MAX_UNCOMPARED: Final = 1 << 16
"""Chunks that landed without their digests, or the reverse: a sender sends both at about the same time."""
BLOCK_BYTES: Final = 4096
"""Of zeros in a file with holes, which are not written: the block size of most file systems."""
_ZEROS: Final = bytes(256 << 10)
_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""With other errors of fallocate the file system has no such call, and the blocks are allocated as they are written."""
_SYNC_FILE_RANGE_WRITE: Final = 2  # linux/fs.h
_PUNCH_HOLE: Final = 1 | 2  # linux/falloc.h, with KEEP_SIZE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
_libc.sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)


class ChunkFile:
    """The chunks of one file. Blocking; used from a worker thread. Methods raise OSError for the file system's errors.

    Setting `stop` interrupts `resume` and `leave_out`, which may take long for a large file.
    """

    def __init__(self, offer: Offer, *, stop: threading.Event) -> None:
        self.taken = 0
        """Leading chunks of earlier attempts that were verified."""
        self.beyond: list[tuple[int, int]] = []
        """Ranges of such chunks behind a missing one: first and number."""
        self._offer = offer
        self._stop = stop
        self._digest = file_digest(offer.file_hash)
        self._hashed = 0  # leading chunks that the digest covers
        self._stored: set[int] = set()  # chunks that are written but not hashed
        self._holes: dict[int, int] = {}  # the same of holes: first chunk, and that behind the last
        self._landed: dict[int, bytes] = {}  # digests of chunks without the sender's
        self._announced: dict[int, bytes] = {}  # the sender's, of chunks that have not landed
        self._verified = 0  # chunks, of both ends' digests
        self._allocated_bytes = offer.size  # leading bytes that need no allocation
        self._written_back_bytes = 0  # leading bytes that the kernel was asked to write
        self._fd = self._journal = -1
        self._notes_at = 0
        self._is_new = True  # the file was empty

    def resume(self, fd: int, *, journal: int, notes_at: int, is_new: bool) -> int:
        """Use these descriptors; return the number of leading chunks of an earlier attempt that are verified.

        `journal`: -1 for none; `notes_at`: offset of its first digest; `is_new`: nothing can be resumed. Raises
        TransferInterruptedError when stopped.
        """
        self._fd, self._journal, self._notes_at, self._is_new = fd, journal, notes_at, is_new
        if is_new:
            os.ftruncate(fd, 0)
        else:
            self._verify_leading()
            self._verify_beyond()
        self.taken = self._hashed
        self._verified = self._hashed + len(self._stored)
        self._written_back_bytes = self._hashed * self._offer.chunk_bytes
        return self._hashed

    def allocate(self) -> None:
        """Make the file as long as it will be; from now on allocate blocks, where the file system can, but for holes.

        Raises OSError when the disk is full.
        """
        os.ftruncate(self._fd, self._offer.size)
        if self._offer.data_bytes is None:
            self._allocated_bytes = 0
            self._allocate_to(1)

    def _allocate_to(self, end_bytes: int) -> None:
        """Allocate what is not allocated before this offset, and the rest of a piece."""
        while self._allocated_bytes < min(end_bytes, self._offer.size):
            piece_bytes = min(ALLOCATE_BYTES, self._offer.size - self._allocated_bytes)
            if (code := _allocate(self._fd, piece_bytes, at=self._allocated_bytes)) in _FULL:
                raise OSError(code, os.strerror(code))
            self._allocated_bytes = self._offer.size if code else self._allocated_bytes + piece_bytes

    def _verify_leading(self) -> None:
        """Hash the chunks in the journal, up to the first whose digest differs."""
        while self._hashed < self._offer.chunks:
            noted = os.pread(self._journal, CHUNK_DIGEST_BYTES, self._note_at(self._hashed))
            if (chunk := self._noted_chunk(self._hashed, noted)) is None:
                return
            self._digest.update(chunk)
            self._hashed += 1

    def _verify_beyond(self) -> None:
        """Find the ranges of chunks in the journal behind the first whose digest differs."""
        index = self._hashed
        while notes := os.pread(self._journal, _NOTES_AT_ONCE * CHUNK_DIGEST_BYTES, self._note_at(index)):
            for at in range(0, len(notes), CHUNK_DIGEST_BYTES):
                if self._noted_chunk(index, notes[at : at + CHUNK_DIGEST_BYTES]) is not None and not self._add(index):
                    return
                index += 1

    def _add(self, index: int) -> bool:
        """Note a verified chunk behind a gap; return False if it begins a range too many."""
        first, count = self.beyond[-1] if self.beyond else (index, 0)
        if index == first + count:
            self.beyond[-1:] = [(first, count + 1)]
        elif len(self.beyond) < MAX_RANGES:
            self.beyond.append((index, 1))
        else:
            return False
        self._stored.add(index)
        return True

    def _noted_chunk(self, index: int, noted: bytes) -> memoryview | None:
        """Read a chunk back; return it if it has the digest that was noted."""
        if self._stop.is_set():
            raise TransferInterruptedError("stopped")
        if index >= self._offer.chunks or not any(noted):
            return None
        chunk = memoryview(os.pread(self._fd, self._offer.chunk_bytes, index * self._offer.chunk_bytes))
        return chunk if len(chunk) == self._length(index) and chunk_digest([chunk]) == noted else None

    def _length(self, index: int) -> int:
        return min(self._offer.chunk_bytes, self._offer.size - index * self._offer.chunk_bytes)

    def _note_at(self, index: int) -> int:
        return self._notes_at + index * CHUNK_DIGEST_BYTES

    @property
    def complete(self) -> bool:
        """Whether every chunk has been written, hashed and compared."""
        return self._hashed == self._verified == self._offer.chunks

    def put(self, index: int, views: Sequence[memoryview]) -> None:
        """Write and hash a chunk. Raises TransferError for one that is not part of the file, came twice, or differs."""
        length = sum(len(view) for view in views)
        if index >= self._offer.chunks or length != self._length(index):
            raise TransferError(f"{self._offer.name}: chunk {index} of {length} bytes is not part of the file")
        if self._has(index, index + 1):
            raise TransferError(f"{self._offer.name}: chunk {index} came twice")
        digest = chunk_digest(views) if self._offer.has_chunk_digests else b""
        if self._offer.data_bytes is None:
            self._allocate_to(index * self._offer.chunk_bytes + length)
            self._write(views, index * self._offer.chunk_bytes)
        else:
            self._write_data(b"".join(views), index * self._offer.chunk_bytes)
        if index == self._hashed:
            for view in views:
                self._digest.update(view)
            self._hashed += 1
            self._catch_up()
        else:
            self._stored.add(index)
        if digest:
            self._match(index, digest, mine=self._landed, theirs=self._announced)
        else:
            self._verified += 1
        self._write_back()

    def leave_out(self, first: int, chunks: int) -> None:
        """Take successive chunks as zeros that are not written. Raises TransferError, and when stopped."""
        end = first + chunks
        if self._offer.data_bytes is None or end > self._offer.chunks:
            raise TransferError(f"{self._offer.name}: a hole from chunk {first} on is not part of the file")
        if self._has(first, end):
            raise TransferError(f"{self._offer.name}: a hole from chunk {first} on, of which chunks came before")
        start_bytes = first * self._offer.chunk_bytes
        self._clear(start_bytes, min(end * self._offer.chunk_bytes, self._offer.size) - start_bytes)
        self._holes[first] = end
        self._verified += chunks
        if len(self._holes) > MAX_UNCOMPARED:
            raise TransferError(f"{self._offer.name}: too many holes before the chunks between them")
        self._catch_up()

    def _has(self, first: int, end: int) -> bool:
        """Whether one of these chunks, or a hole with it, has come."""
        if first < self._hashed or any(first < hole_end and hole < end for hole, hole_end in self._holes.items()):
            return True
        return first in self._stored if end == first + 1 else any(first <= index < end for index in self._stored)

    def _write(self, views: Sequence[memoryview], at: int) -> None:
        for start in range(0, len(views), IOV_MAX):
            at += _write_all(self._fd, views[start : start + IOV_MAX], at)

    def _write_data(self, chunk: bytes, at: int) -> None:
        """Write a chunk of a file with holes without its blocks of zeros."""
        self._clear(at, len(chunk))
        view, blocks = memoryview(chunk), range(0, len(chunk), BLOCK_BYTES)
        for is_data, group in groupby(blocks, key=lambda start: _is_data(chunk[start : start + BLOCK_BYTES])):
            starts = list(group)
            if is_data:
                self._write([view[starts[0] : starts[-1] + BLOCK_BYTES]], at + starts[0])

    def _clear(self, at: int, length: int) -> None:
        """Remove what an earlier attempt has left where nothing is written now."""
        if self._is_new:
            return
        if _libc.fallocate(self._fd, _PUNCH_HOLE, at, length) == 0:
            return
        for start in range(0, length, len(_ZEROS)):  # the file system has no holes
            if self._stop.is_set():
                raise TransferInterruptedError("stopped")
            _write_all(self._fd, [memoryview(_ZEROS)[: length - start]], at + start)

    def announce(self, first: int, digests: Sequence[bytes]) -> None:
        """Take the sender's digests of successive chunks. Raises TransferError."""
        if not 0 <= first <= self._offer.chunks - len(digests):
            raise TransferError(f"{self._offer.name}: digests from chunk {first} on are not of the file")
        for index, digest in enumerate(digests, first):
            if index in self._announced:
                raise TransferError(f"{self._offer.name}: the digest of chunk {index} came twice")
            self._match(index, digest, mine=self._announced, theirs=self._landed)

    def _match(self, index: int, digest: bytes, *, mine: dict[int, bytes], theirs: dict[int, bytes]) -> None:
        """Compare the digests of a chunk, if both are there, and note it in the journal."""
        other = theirs.pop(index, None)
        if other is None:
            mine[index] = digest
            if len(mine) > MAX_UNCOMPARED:
                raise TransferError(f"{self._offer.name}: chunks and their digests do not come together")
        elif other != digest:
            raise TransferInterruptedError(f"{self._offer.name}: chunk {index} arrived damaged: its digests differ")
        else:
            self._verified += 1
            if self._journal >= 0:
                os.pwrite(self._journal, digest, self._note_at(index))

    def _catch_up(self) -> None:
        while True:
            if self._hashed in self._stored:
                self._stored.remove(self._hashed)
                chunk = os.pread(self._fd, self._offer.chunk_bytes, self._hashed * self._offer.chunk_bytes)
                self._digest.update(memoryview(chunk))
                self._hashed += 1
            elif self._hashed in self._holes:
                self._hash_zeros(self._holes.pop(self._hashed))
            else:
                return

    def _hash_zeros(self, end: int) -> None:
        left_bytes = min(end * self._offer.chunk_bytes, self._offer.size) - self._hashed * self._offer.chunk_bytes
        while left_bytes:
            if self._stop.is_set():
                raise TransferInterruptedError("stopped")
            piece = memoryview(_ZEROS)[:left_bytes]
            self._digest.update(piece)
            left_bytes -= len(piece)
        self._hashed = end

    def _write_back(self) -> None:
        """Have the kernel begin to write the leading chunks to the disk, whose errors `fsync` reports."""
        start_bytes, end_bytes = self._written_back_bytes, self._hashed * self._offer.chunk_bytes
        if end_bytes - start_bytes >= WRITE_BACK_BYTES:
            _libc.sync_file_range(self._fd, start_bytes, end_bytes - start_bytes, _SYNC_FILE_RANGE_WRITE)
            self._written_back_bytes = end_bytes

    def hexdigest(self) -> str:
        """Return the digest of the leading chunks, in hex: of the file, when it is complete."""
        return self._digest.hexdigest()


def _allocate(fd: int, size_bytes: int, *, at: int) -> int:
    """Allocate blocks of a file from this offset on; return 0, or the number of the error.

    By the system call: without it in the file system, posix_fallocate(3) writes to every block.
    """
    return ctypes.get_errno() if _libc.fallocate(fd, 0, at, size_bytes) < 0 else 0


def _is_data(block: bytes) -> bool:
    return block != _ZEROS[: len(block)]


def _write_all(fd: int, views: Sequence[memoryview], at: int) -> int:
    """Write all of `views` from offset `at`, in several calls if necessary; return the number of bytes."""
    total = sum(len(view) for view in views)
    written = os.pwritev(fd, views, at)
    while written < total:
        rest = b"".join(views)[written:]
        count = os.pwrite(fd, rest, at + written)
        if count == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written += count
    return total
