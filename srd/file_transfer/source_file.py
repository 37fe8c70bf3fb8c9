"""A file to send: read chunk by chunk, and hashed as it is read. Blocking; used from a worker thread."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from srd.file_transfer.digests import FileDigest, chunk_digest
from srd.file_transfer.errors import TransferError
from srd.file_transfer.protocol import CHUNK_BYTES, FILE_HASHES

_HASH_BYTES = 256 << 10
"""Read at once for the digest only: small enough for a core's own cache."""


class SourceFile:
    """A file to send, opened once, and its running digest, for all attempts. A context manager.

    Raises TransferError, which names the file, when it cannot be opened or is not a regular file.
    """

    def __init__(self, path: Path, *, file_hash: str = FILE_HASHES[0]) -> None:
        self.path = path
        self.digest = FileDigest(file_hash)
        self.hashed_chunks = 0
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # or a FIFO would wait for its writer
        except OSError as error:
            raise self.unreadable(error) from error
        status = os.fstat(self.fd)
        self.size = status.st_size
        self._modified_ns = status.st_mtime_ns
        if not stat.S_ISREG(status.st_mode):
            self.close()
            what = "Is a directory" if stat.S_ISDIR(status.st_mode) else "Is no regular file"
            raise TransferError(f"{path}: cannot be read: {what}")

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
        if (status.st_size, status.st_mtime_ns) != (self.size, self._modified_ns):
            raise TransferError(f"{self.path}: was changed while it was sent; send it again")

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
        return self.length(index), digest

    def hash_next(self) -> None:
        """Add the next chunk to the file's digest, and do nothing else with it. Blocking. Raises TransferError."""
        self.read(self.hashed_chunks, into=memoryview(bytearray(_HASH_BYTES)))

    def _pieces(self, index: int, *, into: memoryview) -> Iterator[memoryview]:
        length = self.length(index)
        for done in range(0, length, len(into)):
            with into[: min(len(into), length - done)] as view:
                try:
                    count = os.preadv(self.fd, [view], index * CHUNK_BYTES + done)
                except OSError as error:
                    raise self.unreadable(error) from error
                if count != len(view):
                    raise TransferError(f"{self.path}: became shorter while it was read; send it again")
                yield view
                if index == self.hashed_chunks:
                    self.digest.update(view)

    def unreadable(self, error: OSError) -> TransferError:
        """Return the error that names the file."""
        return TransferError(f"{self.path}: cannot be read: {error.strerror}")

    def close(self) -> None:
        """Close the file."""
        os.close(self.fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
