"""A file being received: it has a temporary name until every byte is verified. Blocking; used from a worker thread.

An interrupted transfer leaves its partial file. The next attempt reads it back and continues after the leading chunks
that have the digests in the journal (chunk_file.py).
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import threading
from pathlib import Path

from srd.file_transfer.chunk_file import ChunkFile
from srd.file_transfer.errors import TransferError, TransferInterruptedError
from srd.file_transfer.leftovers import head_of, journal_path, open_locked, part_path
from srd.file_transfer.ordered_chunks import OrderedChunks
from srd.file_transfer.protocol import Offer
from srd.file_transfer.store import FileStore
from srd.file_transfer.tree import DirectoryTree, set_mode, set_time

_FOR_NOW = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""Temporary shortages of the process or the host: another attempt may succeed."""
_NO_SYNC = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}
"""Errors of file systems whose directories cannot be synced: CIFS returns EINVAL (fsync(2)), those of FUSE vary."""


class PartialFile(FileStore):
    """A file in a directory. Raises TransferError for errors of the file system.

    Setting `stop` interrupts the verification of an earlier attempt's chunks, which may take long for a large file.
    """

    def __init__(
        self, tree: DirectoryTree, offer: Offer, *, overwrite: bool, stop: threading.Event | None = None
    ) -> None:
        self._file = None if offer.is_pipe else ChunkFile(offer, stop=stop or threading.Event())
        super().__init__(offer, self._file or OrderedChunks(offer, write=self._append))
        self._tree = tree
        self._last = ""  # component of the name
        self._overwrite = overwrite
        self._fd = self._journal = self._directory = -1
        self._head = head_of(offer)
        self._partial, self._journalled = part_path(tree.root, offer.transfer), journal_path(tree.root, offer.transfer)

    def open(self) -> None:
        """Create the partial file, or resume that of an earlier attempt."""
        if self._fd >= 0:
            return  # a pipe's, which was left
        name = self._offer.name
        try:
            # All descriptors are opened now, so that a complete file does not fail for lack of one.
            self._directory, self._last = self._tree.open_parent(name)
            if not self._overwrite and self._exists():
                raise TransferError(f"{name}: exists already at the receiver, which was started without --overwrite")
            self._fd = open_locked(self._partial)
            self._resume()
            disk = os.fstatvfs(self._directory)
            data_bytes = self._offer.size if self._offer.data_bytes is None else self._offer.data_bytes
            needed_bytes = data_bytes - os.fstat(self._fd).st_blocks * 512
        except OSError as error:
            raise refusal_of(error, name=name, what="cannot be created") from error
        if needed_bytes > (free_bytes := disk.f_bavail * disk.f_frsize):
            raise TransferError(f"{name}: needs {needed_bytes} bytes; the receiver has {free_bytes} left")
        if self._file is not None:
            with self._writing():
                self._file.allocate()

    def _exists(self) -> bool:
        try:
            os.stat(self._last, dir_fd=self._directory, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def _resume(self) -> None:
        """Resume an earlier attempt, if any, and open the journal for the next one. Raises OSError."""
        if self._file is None:
            os.ftruncate(self._fd, 0)
            return
        is_new = True
        if self._offer.retry_for_s and self._offer.has_chunk_digests:
            self._journal = os.open(self._journalled, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            is_new = os.pread(self._journal, len(self._head), 0) != self._head
        self._file.resume(self._fd, journal=self._journal, notes_at=len(self._head), is_new=is_new)
        if self._journal >= 0 and not (self.chunks.taken or self.chunks.beyond):
            os.ftruncate(self._journal, 0)
            os.pwrite(self._journal, self._head, 0)

    def _append(self, chunk: bytes) -> None:
        rest = memoryview(chunk)
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def publish(self, *, sync: bool) -> None:
        """Give the verified file its mode, its final name, and its time. `sync`: sync it before; the caller may have.

        The caller syncs the directory afterwards, and then calls `abort`, which removes what is left.
        """
        try:
            self.unkept |= set_mode(self._fd, self._offer)
            if sync:
                os.fsync(self._fd)
            if self._overwrite:
                os.replace(self._partial, self._last, dst_dir_fd=self._directory)
            else:
                publish(self._partial, self._last, directory=self._directory)
            # Not before: the age of a leftover counts from its last write.
            self.unkept |= set_time(self._fd, self._offer)
        except OSError as error:
            raise self._not_final(error) from error

    def sync_directory(self) -> None:
        """Sync the directory that the file lies in, where the file system can."""
        try:
            os.fsync(self._directory)
        except OSError as error:
            if error.errno not in _NO_SYNC:
                raise self._not_final(error) from error

    def file_system(self) -> tuple[int, int]:
        """Return the device of the file system that the file lies on, and an open descriptor there."""
        return os.fstat(self._fd).st_dev, self._fd

    def directory(self) -> tuple[int, int]:
        """Return device and inode of the directory that the file lies in."""
        status = os.fstat(self._directory)
        return status.st_dev, status.st_ino

    def _not_final(self, error: OSError) -> TransferError:
        return TransferError(f"{self._offer.name}: cannot be kept at the receiver: {error.strerror}")

    def leave(self) -> None:
        """Close the files and keep them for the next attempt. A pipe's stays open: only this process can go on."""
        super().leave()
        if self._file is not None:
            self._close()

    def _close(self) -> None:
        for fd in (self._journal, self._directory, self._fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._journal = self._directory = -1

    def abort(self) -> None:
        """Remove the partial file and its journal. A failure to do so is not raised: see `unremoved`."""
        if self._fd < 0:
            self._close()
            return
        paths = (self._partial, self._journalled) if self._journal >= 0 else (self._partial,)
        for path in paths:  # while the lock is held
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                self.unremoved = f"{path}: cannot be removed: {error.strerror}"
        self._close()


def refusal_of(error: OSError, *, name: str, what: str) -> TransferError:
    """Return the error for a file that the file system does not open now, or not at all."""
    if error.errno in _FOR_NOW:
        return TransferInterruptedError(f"{name}: the receiver cannot take it now: {error.strerror}")
    return TransferError(f"{name}: {what} at the receiver: {error.strerror}")


_AT_FDCWD = -100  # linux/fcntl.h
_RENAME_NOREPLACE = 1  # linux/fs.h
_libc = ctypes.CDLL(None, use_errno=True)
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES, errno.EINVAL}
"""Errors of file systems without hard links: FAT and exFAT return EPERM, others vary."""
_NO_FLAG = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}


def publish(partial: Path, final: str, *, directory: int) -> bool:
    """Give `partial` the name `final` in an open directory, which is no file's; return whether `partial` was removed.

    This works on all file systems, including those without hard links. Raises OSError, FileExistsError.
    """
    try:
        os.link(partial, final, dst_dir_fd=directory)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
    else:
        return False
    try:
        rename_noreplace(partial, final, directory=directory)
    except OSError as error:
        if error.errno not in _NO_FLAG:
            raise
        # Neither is supported: create an empty file, which fails if the name exists, and replace it.
        # Needs no descriptor, of which there may be none left.
        os.mknod(final, stat.S_IFREG | 0o666, dir_fd=directory)
        os.replace(partial, final, dst_dir_fd=directory)
    return True


def rename_noreplace(source: Path, target: str, *, directory: int) -> None:
    """Rename a file into an open directory with renameat2(2), which refuses an existing target. Raises OSError."""
    if _libc.renameat2(_AT_FDCWD, os.fsencode(source), directory, os.fsencode(target), _RENAME_NOREPLACE) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(source), None, target)
