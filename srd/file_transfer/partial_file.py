"""A file being received: it has a temporary name until every byte is verified. Blocking; used from a worker thread.

An interrupted transfer leaves its partial file. The next attempt reads it back and continues after the leading chunks
that have the digests in the journal (chunk_file.py).
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path

from srd.file_transfer.chunk_file import ChunkFile
from srd.file_transfer.leftovers import head_of, journal_path, open_locked, part_path
from srd.file_transfer.protocol import Offer, TransferError, TransferInterruptedError
from srd.file_transfer.publish import publish

_FOR_NOW = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""Temporary shortages of the process or the host: another attempt may succeed."""


class PartialFile:
    """`open`, `put` chunks, then `finish`, `abort` or `leave`. Raises TransferError for errors of the file system.

    Setting `stop` interrupts the verification of an earlier attempt's chunks, which may take long for a large file.
    """

    def __init__(self, directory: Path, offer: Offer, *, overwrite: bool, stop: threading.Event | None = None) -> None:
        self.final = directory / offer.name
        self.resumed_chunks = 0
        """Number of leading chunks of an earlier attempt that were verified."""
        self.unremoved = ""
        """One line with the file that could not be removed and the reason; empty if there is none."""
        self._offer = offer
        self._overwrite = overwrite
        self._chunks = ChunkFile(offer, stop=stop or threading.Event())
        self._fd = self._journal = self._directory = -1
        self._head = head_of(offer)
        self._partial, self._journalled = part_path(directory, offer.transfer), journal_path(directory, offer.transfer)

    def open(self) -> None:
        """Create the partial file, or resume that of an earlier attempt."""
        name = self._offer.name
        if not self._overwrite and os.path.lexists(self.final):
            raise TransferError(f"{name}: exists already at the receiver, which was started without --overwrite")
        try:
            self._fd = open_locked(self._partial)
            # All descriptors are opened now, so that a complete file does not fail for lack of one.
            self._directory = os.open(self.final.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._resume()
            disk = os.statvfs(self.final.parent)
            needed_bytes = self._offer.size - os.fstat(self._fd).st_blocks * 512
        except OSError as error:
            if error.errno in _FOR_NOW:
                raise TransferInterruptedError(f"{name}: the receiver cannot take it now: {error.strerror}") from error
            raise TransferError(f"{name}: cannot be created at the receiver: {error.strerror}") from error
        if needed_bytes > (free_bytes := disk.f_bavail * disk.f_frsize):
            raise TransferError(f"{name}: needs {needed_bytes} bytes; the receiver has {free_bytes} left")
        try:
            self._chunks.allocate()
        except OSError as error:
            raise self._unwritten(error) from error

    def _resume(self) -> None:
        """Resume an earlier attempt, if any, and open the journal for the next one. Raises OSError."""
        is_new = True
        if self._offer.retry_for_s:
            self._journal = os.open(self._journalled, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            is_new = os.pread(self._journal, len(self._head), 0) != self._head
        self.resumed_chunks = self._chunks.resume(
            self._fd, journal=self._journal, notes_at=len(self._head), is_new=is_new
        )
        if self._journal >= 0 and not self.resumed_chunks:
            os.ftruncate(self._journal, 0)
            os.pwrite(self._journal, self._head, 0)

    @property
    def complete(self) -> bool:
        """Whether every chunk has been written, hashed and compared."""
        return self._chunks.complete

    def put(self, index: int, views: Sequence[memoryview]) -> None:
        """Write a chunk, which lies in these pieces of memory."""
        try:
            self._chunks.put(index, views)
        except OSError as error:
            raise self._unwritten(error) from error

    def announce(self, first: int, digests: Sequence[bytes]) -> None:
        """Take the sender's digests of successive chunks."""
        try:
            self._chunks.announce(first, digests)
        except OSError as error:
            raise self._unwritten(error) from error

    def _unwritten(self, error: OSError) -> TransferError:
        return TransferError(f"{self._offer.name}: cannot be written at the receiver: {error.strerror}")

    def finish(self, *, digest: str) -> str:
        """Compare the file's digest, sync, and rename the file to its final name; return the digest."""
        if not self._chunks.complete:
            self.abort()
            raise TransferError(f"{self._offer.name}: chunks, or their digests, did not come")
        actual = self._chunks.hexdigest()
        if actual != digest:
            self.abort()
            kind = self._offer.file_hash.upper()
            raise TransferError(
                f"{self._offer.name}: {kind} is {actual} at the receiver, {digest[:64]!r} at the sender"
            )
        try:
            os.fsync(self._fd)
            if self._overwrite:
                self._partial.replace(self.final)
            else:
                publish(self._partial, self.final)
            os.fsync(self._directory)
        except OSError as error:
            self.abort()
            raise TransferError(f"{self._offer.name}: cannot be kept at the receiver: {error.strerror}") from error
        self.abort()
        return actual

    def leave(self) -> None:
        """Close the files and keep them for the next attempt."""
        for fd in (self._journal, self._directory, self._fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._journal = self._directory = -1

    def abort(self) -> None:
        """Remove the partial file and its journal. A failure to do so is not raised: see `unremoved`."""
        if self._fd < 0:
            return
        paths = (self._partial, self._journalled) if self._journal >= 0 else (self._partial,)
        for path in paths:  # while the lock is held
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                self.unremoved = f"{path}: cannot be removed: {error.strerror}"
        self.leave()
