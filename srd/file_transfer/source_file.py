"""A file to send: read chunk by chunk, and hashed as it is read. Blocking; used from a worker thread."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from pathlib import Path
from types import TracebackType
from typing import Self

from srd.file_transfer.protocol import CHUNK_BYTES, TransferError


class SourceFile:
    """A file to send, opened once, and its running hash, for all attempts. A context manager.

    Raises TransferError, which names the file, when it cannot be opened or is not a regular file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.transfer = secrets.token_hex(16)
        self.digest = hashlib.sha256()
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

    def read(self, index: int, *, into: memoryview, step_bytes: int) -> None:
        """Read a chunk in steps of `step_bytes`, each to the beginning of `into`; hash it unless it was hashed before.

        Blocking. Raises TransferError.
        """
        length = self.length(index)
        for done in range(0, length, step_bytes):
            with into[: min(step_bytes, length - done)] as view:
                try:
                    count = os.preadv(self.fd, [view], index * CHUNK_BYTES + done)
                except OSError as error:
                    raise self.unreadable(error) from error
                if count != len(view):
                    raise TransferError(f"{self.path}: became shorter while it was read; send it again")
                if index == self.hashed_chunks:
                    self.digest.update(view)
        self.hashed_chunks = max(self.hashed_chunks, index + 1)

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
