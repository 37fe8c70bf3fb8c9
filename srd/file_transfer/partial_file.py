"""A file being received: it has a temporary name until every byte is verified. Blocking; used from a worker thread.

Chunks arrive in any order and are written at their offsets. The hash needs them in order: a chunk that arrived early is
read back from the page cache when its turn comes, so that the hash is complete shortly after the last byte arrived.

An interrupted transfer leaves its partial file. The next attempt reads it back and continues after the leading chunks
whose hash equals the one in the journal.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Sequence

from srd.file_transfer.errors import TransferError, TransferInterruptedError
from srd.file_transfer.leftovers import DIGEST_BYTES, head_of, journal_path, open_locked, part_path
from srd.file_transfer.protocol import Offer
from srd.file_transfer.publish import publish
from srd.file_transfer.tree import Tree, set_mode, set_time

IOV_MAX = 1024
"""Buffers that one pwritev accepts (limits.h)."""
_FOR_NOW = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""Temporary shortages of the process or the host: another attempt may succeed."""


class PartialFile:
    """`open`, `put` chunks, then `finish`, `abort` or `leave`. Raises TransferError for errors of the file system.

    Setting `stop` interrupts the verification of an earlier attempt's chunks, which may take long for a large file.
    """

    def __init__(self, tree: Tree, offer: Offer, *, overwrite: bool, stop: threading.Event | None = None) -> None:
        self.final = tree.root / offer.name
        self.resumed_chunks = 0
        """Number of leading chunks of an earlier attempt that were verified."""
        self.unremoved = ""
        """One line with the file that could not be removed and the reason; empty if there is none."""
        self._tree = tree
        self._offer = offer
        self._last = ""  # component of the name
        self._overwrite = overwrite
        self._stop = stop or threading.Event()
        self._hash = hashlib.sha256()
        self._hashed = 0  # leading chunks that the hash covers
        self._stored: set[int] = set()  # chunks that are written but not hashed
        self.fd = self._journal = self._directory = -1  # `fd` is the file's
        self._head = head_of(offer)
        self._partial, self._journalled = part_path(tree.root, offer.transfer), journal_path(tree.root, offer.transfer)

    def open(self) -> None:
        """Create the partial file, or resume that of an earlier attempt."""
        name = self._offer.name
        try:
            # All descriptors are opened now, so that a complete file does not fail for lack of one.
            self._directory, self._last = self._tree.open_parent(name)
            if not self._overwrite and self._exists():
                raise TransferError(f"{name}: exists already at the receiver, which was started without --overwrite")
            self.fd = open_locked(self._partial)
            self._resume()
            disk = os.fstatvfs(self._directory)
            needed_bytes = self._offer.size - os.fstat(self.fd).st_blocks * 512
        except OSError as error:
            if error.errno in _FOR_NOW:
                raise TransferInterruptedError(f"{name}: the receiver cannot take it now: {error.strerror}") from error
            raise TransferError(f"{name}: cannot be created at the receiver: {error.strerror}") from error
        if needed_bytes > (free_bytes := disk.f_bavail * disk.f_frsize):
            raise TransferError(f"{name}: needs {needed_bytes} bytes; the receiver has {free_bytes} left")
        self.resumed_chunks = self._hashed

    def _exists(self) -> bool:
        try:
            os.stat(self._last, dir_fd=self._directory, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def _resume(self) -> None:
        """Resume an earlier attempt, if any, and open the journal for the next one. Raises OSError."""
        if self._offer.retry_for_s:
            self._journal = os.open(self._journalled, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            if os.pread(self._journal, len(self._head), 0) == self._head:
                self._verify_leading()
        os.ftruncate(self.fd, self._hashed * self._offer.chunk_bytes)
        if self._journal >= 0 and not self._hashed:
            os.ftruncate(self._journal, 0)
            os.pwrite(self._journal, self._head, 0)

    def _verify_leading(self) -> None:
        """Hash the chunks in the journal, up to the first whose hash differs."""
        while self._hashed < self._offer.chunks:
            if self._stop.is_set():
                raise TransferInterruptedError("stopped")
            noted = os.pread(self._journal, DIGEST_BYTES, self._note_at(self._hashed))
            chunk = os.pread(self.fd, self._offer.chunk_bytes, self._hashed * self._offer.chunk_bytes)
            longer = self._hash.copy()
            longer.update(chunk)
            if len(chunk) != self._length(self._hashed) or longer.digest() != noted:
                return
            self._hash = longer
            self._hashed += 1

    def _length(self, index: int) -> int:
        return min(self._offer.chunk_bytes, self._offer.size - index * self._offer.chunk_bytes)

    def _note_at(self, index: int) -> int:
        return len(self._head) + index * DIGEST_BYTES

    @property
    def complete(self) -> bool:
        """Whether every chunk has been written and hashed."""
        return self._hashed == self._offer.chunks

    def put(self, index: int, views: Sequence[memoryview]) -> None:
        """Write a chunk."""
        length = sum(len(view) for view in views)
        at = index * self._offer.chunk_bytes
        if index >= self._offer.chunks or length != self._length(index):
            raise TransferError(f"{self._offer.name}: chunk {index} of {length} bytes is not part of the file")
        if index < self._hashed or index in self._stored:
            raise TransferError(f"{self._offer.name}: chunk {index} came twice")
        try:
            for start in range(0, len(views), IOV_MAX):
                at += _write_all(self.fd, views[start : start + IOV_MAX], at)
            if index == self._hashed:
                for view in views:
                    self._hash.update(view)
                self._advance()
                self._catch_up()
            else:
                self._stored.add(index)
        except OSError as error:
            raise TransferError(f"{self._offer.name}: cannot be written at the receiver: {error.strerror}") from error

    def _catch_up(self) -> None:
        while self._hashed in self._stored:
            self._stored.remove(self._hashed)
            self._hash.update(os.pread(self.fd, self._offer.chunk_bytes, self._hashed * self._offer.chunk_bytes))
            self._advance()

    def _advance(self) -> None:
        """Append the hash up to the next chunk to the journal. Raises OSError."""
        if self._journal >= 0:
            os.pwrite(self._journal, self._hash.copy().digest(), self._note_at(self._hashed))
        self._hashed += 1

    def verify(self, *, sha256: str) -> str:
        """Compare the hash with the sender's; return it."""
        actual = self._hash.hexdigest()
        if actual != sha256:
            raise TransferError(
                f"{self._offer.name}: SHA-256 is {actual} at the receiver, {sha256[:64]!r} at the sender"
            )
        return actual

    def publish(self, *, sync: bool) -> None:
        """Give the verified file its mode, its final name, and its time. `sync`: sync it before; the caller may have.

        The caller syncs the directory afterwards, and then calls `abort`, which removes what is left.
        """
        try:
            set_mode(self.fd, self._offer)
            if sync:
                os.fsync(self.fd)
            if self._overwrite:
                os.replace(self._partial, self._last, dst_dir_fd=self._directory)
            else:
                publish(self._partial, self._last, directory=self._directory)
            set_time(self.fd, self._offer)  # not before: the age of a leftover counts from its last write
        except OSError as error:
            raise self._unkept(error) from error

    def sync_directory(self) -> None:
        """Sync the directory that the file lies in."""
        try:
            os.fsync(self._directory)
        except OSError as error:
            raise self._unkept(error) from error

    @property
    def device(self) -> int:
        """Device of the file system that the file lies on."""
        return os.fstat(self.fd).st_dev

    @property
    def directory(self) -> tuple[int, int]:
        """Device and inode of the directory that the file lies in."""
        status = os.fstat(self._directory)
        return status.st_dev, status.st_ino

    def _unkept(self, error: OSError) -> TransferError:
        return TransferError(f"{self._offer.name}: cannot be kept at the receiver: {error.strerror}")

    def leave(self) -> None:
        """Close the files and keep them for the next attempt."""
        for fd in (self._journal, self._directory, self.fd):
            if fd >= 0:
                os.close(fd)
        self.fd = self._journal = self._directory = -1

    def abort(self) -> None:
        """Remove the partial file and its journal. A failure to do so is not raised: see `unremoved`."""
        if self.fd < 0:
            self.leave()
            return
        paths = (self._partial, self._journalled) if self._journal >= 0 else (self._partial,)
        for path in paths:  # while the lock is held
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                self.unremoved = f"{path}: cannot be removed: {error.strerror}"
        self.leave()


def _write_all(fd: int, views: Sequence[memoryview], at: int) -> int:
    """Write all of `views` from offset `at`, in several calls if necessary; return the number of bytes."""
    total = sum(len(view) for view in views)
    written = os.pwritev(fd, views, at)
    while written < total:
        rest = b"".join(views)[written:]
        count = os.pwrite(fd, rest, at + written)
        if count == 0:
            raise OSError(28, "No space left on device")
        written += count
    return total
