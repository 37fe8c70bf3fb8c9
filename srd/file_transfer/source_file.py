"""A file to send: read chunk by chunk, and hashed as it is read. Blocking; used from a worker thread.

A program may write to the file meanwhile. What was read is then no state that the file ever had, so the times of the
file are looked at again when its last chunk was read. If they differ, the owner has the file hashed once more: a file
that has only grown, or got another name, has the same hash as far as it was sent.

Some files say no size, or a wrong one, before they are read: those of /proc, of /sys, and of some FUSE and 9p file
systems. They occupy no blocks. A small one is copied to memory first, and is sent as it was then.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from srd.file_transfer.digests import chunk_digest, file_digest
from srd.file_transfer.errors import TransferError
from srd.file_transfer.protocol import CHUNK_BYTES, FILE_HASHES, MAX_PIPE_CHUNKS

_ZEROS = memoryview(bytes(CHUNK_BYTES))
_HASH_BYTES = 256 << 10
"""Read at once for the digest only: small enough for a core's own cache."""


MAX_COPY_BYTES = 16 << 20
"""Of a file that is copied to memory. Those of /proc and /sys are short; up to MAX_FILES of them may be open."""
_TICK_NS = 20_000_000
"""Two changes within a tick of the kernel's clock, 10 ms at most, leave the same times."""
HASH_AT_ONCE = 64
"""Chunks that one call only hashes: some ten milliseconds."""


class SourceFile:
    """A file to send, opened once, and its running digest, for all attempts.

    Raises TransferError, which names the file, when it cannot be opened or is not a regular file.
    """

    def __init__(self, path: Path, *, file_hash: str = FILE_HASHES[0]) -> None:
        self.path = path
        self.digest = file_digest(file_hash)
        self.hashed_chunks = 0
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # or a FIFO would wait for its writer
        except OSError as error:
            raise self.unreadable(error) from error
        status = os.fstat(self.fd)
        self.size = status.st_size
        self.mtime_ns = status.st_mtime_ns
        self._opened = status
        self.is_suspect = abs(time.time_ns() - status.st_ctime_ns) < _TICK_NS
        """Whether the file may have been changed since it was opened; known when its last chunk was read."""
        if not stat.S_ISREG(status.st_mode):
            self.close()
            what = "Is a directory" if stat.S_ISDIR(status.st_mode) else "Is no regular file"
            raise TransferError(f"{path}: cannot be read: {what}")
        if self.chunks >= MAX_PIPE_CHUNKS:
            self.close()
            raise TransferError(f"{path}: has {self.size} bytes, more than can be sent; split it")
        stored_bytes = status.st_blocks * 512
        self.holes = _holes(self.fd, self.size) if stored_bytes < self.size else []
        """Ranges of chunks that lie in holes: first and number."""
        self.data_bytes = stored_bytes if self.holes else None
        """Bytes that are stored, if it has such chunks."""
        if not (self.holes or stored_bytes) and self.size <= MAX_COPY_BYTES:
            self._copy()

    def _copy(self) -> None:
        """Send what can be read now, whatever size the file has. Raises TransferError if it does not end."""
        copy = -1
        try:
            piece = os.pread(self.fd, _HASH_BYTES, 0)
            if not (piece or self.size):
                return
            copy, size = os.memfd_create("srd-copy", os.MFD_CLOEXEC), 0
            while piece and size <= MAX_COPY_BYTES:
                size += os.write(copy, piece)
                piece = os.pread(self.fd, _HASH_BYTES, size)
            status = os.fstat(self.fd)
        except OSError as error:
            self._drop(copy)
            raise self.unreadable(error) from error
        if size > MAX_COPY_BYTES:
            self._drop(copy)
            raise TransferError(f"{self.path}: has no size before it is read; send it as a pipe: cat FILE | srd send -")
        if times(status) != times(self._opened):
            self._drop(copy)
            raise self.changed()
        os.close(self.fd)
        self.fd, self.size, self._opened, self.is_suspect = copy, size, os.fstat(copy), False

    def _drop(self, copy: int) -> None:
        self.close()
        if copy >= 0:
            os.close(copy)

    @property
    def chunks(self) -> int:
        """Number of chunks; an empty file has none."""
        return -(-self.size // CHUNK_BYTES)

    def length(self, index: int) -> int:
        """Return the length of a chunk."""
        return min(CHUNK_BYTES, self.size - index * CHUNK_BYTES)

    def check_unchanged(self) -> None:
        """Raise TransferError if the file was changed since it was opened."""
        status = os.fstat(self.fd)
        if (status.st_size, status.st_mtime_ns) != (self.size, self._opened.st_mtime_ns):
            raise self.changed()

    def check_mapped(self) -> None:
        """Raise TransferError if the file became shorter: what is missing cannot be sent from its mapping."""
        if os.fstat(self.fd).st_size < self.size:
            raise self._shorter()

    def _shorter(self) -> TransferError:
        return TransferError(f"{self.path}: became shorter while it was read; send it again")

    def changed(self) -> TransferError:
        """Return the error for a file that was changed."""
        return TransferError(f"{self.path}: was changed while it was sent; send it again")

    def hash_again(self) -> None:
        """Forget what was hashed, so that `hash_to` reads the file once more."""
        self.digest, self.hashed_chunks = file_digest(self.digest.name), 0

    def begin(self) -> None:
        """Nothing: files are read at once."""

    def stop(self) -> None:
        """Nothing: reading a file ends soon."""

    def check_from(self, index: int) -> None:
        """Nothing: any chunk can be read."""

    def take(self, taken: int) -> None:
        """Nothing: what the receiver has taken can be read again."""

    def read(self, index: int, *, into: memoryview) -> tuple[int, bytes]:
        """Read a chunk in steps as long as `into`, each to its beginning; return the chunk's length and digest.

        The file's digest goes on, unless the chunk was read before. Blocking. Raises TransferError.
        """
        digest = chunk_digest(self._pieces(index, into=into))
        self.hashed_chunks = max(self.hashed_chunks, index + 1)
        self._look(index + 1)
        return self.length(index), digest

    def hash_to(self, end: int, *, are_zeros: bool) -> None:
        """Add the next chunks to the file's digest up to `end`, not more than HASH_AT_ONCE, and do nothing else.

        `are_zeros`: they lie in a hole, and are not read. Blocking. Raises TransferError.
        """
        for index in range(self.hashed_chunks, min(end, self.hashed_chunks + HASH_AT_ONCE)):
            if are_zeros:
                self.digest.update(_ZEROS[: self.length(index)])
                self.hashed_chunks += 1
                self._look(index + 1)
            else:
                self.read(index, into=memoryview(bytearray(_HASH_BYTES)))

    def _look(self, end: int) -> None:
        """Behind the last chunk see whether the file may have been changed."""
        if end == self.chunks:
            self.is_suspect |= times(os.fstat(self.fd)) != times(self._opened)

    def _pieces(self, index: int, *, into: memoryview) -> Iterator[memoryview]:
        length = self.length(index)
        for done in range(0, length, len(into)):
            with into[: min(len(into), length - done)] as view:
                self._fill(view, index * CHUNK_BYTES + done)
                yield view
                if index == self.hashed_chunks:
                    self.digest.update(view)

    def _fill(self, view: memoryview, at: int) -> None:
        """Read until `view` is full: file systems of other hosts and of FUSE may return less at a time."""
        done = 0
        while done < len(view):
            try:
                count = os.preadv(self.fd, [view[done:]], at + done)
            except OSError as error:
                raise self.unreadable(error) from error
            if not count:
                raise self._shorter()
            done += count

    def unreadable(self, error: OSError) -> TransferError:
        """Return the error that names the file."""
        return TransferError(f"{self.path}: cannot be read: {error.strerror}")

    def close(self) -> None:
        """Close the file."""
        os.close(self.fd)


def times(status: os.stat_result) -> tuple[int, int, int]:
    """Return what differs after a change."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _holes(fd: int, size: int) -> list[tuple[int, int]]:
    """Return the ranges of chunks that lie in holes; none if the file system does not know them."""
    found, at = [], 0
    try:
        while at < size and (hole := os.lseek(fd, at, os.SEEK_HOLE)) < size:
            at = _data_from(fd, hole, size)
            first, end = -(-hole // CHUNK_BYTES), -(-size // CHUNK_BYTES) if at == size else at // CHUNK_BYTES
            if first < end:
                found.append((first, end - first))
    except OSError:
        return []
    return found


def _data_from(fd: int, hole: int, size: int) -> int:
    """Return where data begins behind `hole`; the end of the file if there is none."""
    try:
        return os.lseek(fd, hole, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return size
        raise
