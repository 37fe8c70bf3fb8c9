"""A file on its way in: a temporary name until every byte is verified. Blocking; used from a worker thread.

Chunks come in any order and are written where they belong. The hash needs them in order: what arrived early is read
back from the page cache when its turn comes, so that the hash is complete a moment after the last byte.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from srd.transfer.words import Offer, TransferError

IOV_MAX = 1024
"""Pieces that one pwritev takes (limits.h)."""


class Store:
    """`put` chunks, then `finish`, or `abort`. Raises TransferError for what the file system refuses."""

    def __init__(self, directory: Path, offer: Offer, *, overwrite: bool) -> None:
        self.final = directory / offer.name
        self._offer = offer
        self._overwrite = overwrite
        self._hash = hashlib.sha256()
        self._hashed = 0  # chunks
        self._stored: set[int] = set()  # chunks that are written but not hashed
        if not overwrite and os.path.lexists(self.final):
            raise TransferError(f"{offer.name}: exists already at the receiver, which was started without --overwrite")
        self._partial = directory / f".srd-{secrets.token_hex(8)}.part"
        try:
            free_bytes = os.statvfs(directory).f_bavail * os.statvfs(directory).f_frsize
            if offer.size > free_bytes:
                raise TransferError(f"{offer.name}: needs {offer.size} bytes; the receiver has {free_bytes} left")
            self._fd = os.open(self._partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise TransferError(f"{offer.name}: cannot be created at the receiver: {error.strerror}") from error

    @property
    def complete(self) -> bool:
        """Whether every chunk was put."""
        return self._hashed == self._offer.chunks

    def put(self, index: int, views: Sequence[memoryview]) -> None:
        """Write a chunk."""
        length = sum(len(view) for view in views)
        at = index * self._offer.chunk_bytes
        if index >= self._offer.chunks or length != min(self._offer.chunk_bytes, self._offer.size - at):
            raise TransferError(f"{self._offer.name}: chunk {index} of {length} bytes is not part of the file")
        if index < self._hashed or index in self._stored:
            raise TransferError(f"{self._offer.name}: chunk {index} came twice")
        try:
            for start in range(0, len(views), IOV_MAX):
                at += _write_all(self._fd, views[start : start + IOV_MAX], at)
        except OSError as error:
            raise TransferError(f"{self._offer.name}: cannot be written at the receiver: {error.strerror}") from error
        if index == self._hashed:
            for view in views:
                self._hash.update(view)
            self._hashed += 1
            self._catch_up()
        else:
            self._stored.add(index)

    def _catch_up(self) -> None:
        while self._hashed in self._stored:
            self._stored.remove(self._hashed)
            at = self._hashed * self._offer.chunk_bytes
            try:
                chunk = os.pread(self._fd, self._offer.chunk_bytes, at)
            except OSError as error:
                raise TransferError(f"{self._offer.name}: cannot be read back: {error.strerror}") from error
            self._hash.update(chunk)
            self._hashed += 1

    def finish(self, *, sha256: str) -> str:
        """Compare the hash, sync, and give the file its name; return the hash."""
        actual = self._hash.hexdigest()
        if actual != sha256:
            self.abort()
            raise TransferError(
                f"{self._offer.name}: SHA-256 is {actual} at the receiver, {sha256[:64]!r} at the sender"
            )
        try:
            os.fsync(self._fd)
            if self._overwrite:
                self._partial.replace(self.final)
            else:
                os.link(self._partial, self.final)  # unlike rename, refuses a name that was taken meanwhile
                self._partial.unlink()
            directory = os.open(self.final.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            self.abort()
            raise TransferError(f"{self._offer.name}: cannot be kept at the receiver: {error.strerror}") from error
        os.close(self._fd)
        self._fd = -1
        return actual

    def abort(self) -> None:
        """Remove what there is of it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._partial.unlink(missing_ok=True)


def _write_all(fd: int, views: Sequence[memoryview], at: int) -> int:
    """Write all of `views` from offset `at`, however the kernel splits it; return how many bytes that was."""
    total = sum(len(view) for view in views)
    written = os.pwritev(fd, views, at)
    while written < total:
        rest = b"".join(views)[written:]
        count = os.pwrite(fd, rest, at + written)
        if count == 0:
            raise OSError(28, "No space left on device")
        written += count
    return total
