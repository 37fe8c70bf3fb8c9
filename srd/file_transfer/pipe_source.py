"""A pipe to send: read once, chunk by chunk, hashed as it is read. Blocking; used from a worker thread.

A chunk is what came within FILL_WITHIN_S, at most CHUNK_BYTES: full when the writer is fast, and soon on its way when
it is not. What was read cannot be read again, so each chunk is kept until the receiver has taken it.
"""

from __future__ import annotations

import fcntl
import math
import os
import select
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from srd.file_transfer.digests import chunk_digest, file_digest
from srd.file_transfer.errors import TransferError
from srd.file_transfer.protocol import CHUNK_BYTES, STANDARD_STREAM

FILL_WITHIN_S: Final = 0.01
"""From the first byte of a chunk: at most 100 chunks a second of a slow writer, which cost nothing."""
_LOOK_EVERY_S: Final = 0.1
"""How often a thread that waits for the writer looks whether it shall stop."""


class PipeSource:
    """A descriptor to read to its end, for all attempts. It stays open: it is the caller's."""

    def __init__(self, fd: int, *, file_hash: str) -> None:
        self.path = Path(STANDARD_STREAM)
        self.digest = file_digest(file_hash)
        self.size = 0
        """Bytes that were read."""
        self.hashed_chunks = 0
        """Chunks that were read."""
        self.chunks: int | None = None
        """Number of chunks, once the end was read."""
        self._fd = fd
        self._kept: dict[int, bytes] = {}  # by number, not taken yet
        self._taken = 0
        self._begun = bytearray()  # the next chunk, as far as it was read
        self._is_stopped = threading.Event()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        with suppress(OSError):  # no pipe, or more than this user may have
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, CHUNK_BYTES)

    def check_unchanged(self) -> None:
        """Nothing: what was read is kept."""

    def begin(self) -> None:
        """Read again after `stop`."""
        self._is_stopped.clear()

    def stop(self) -> None:
        """Have `read` wait no longer. Safe in any thread."""
        self._is_stopped.set()

    def check_from(self, index: int) -> None:
        """Raise TransferError if chunk `index` and those behind it are not all at hand."""
        if not self._taken <= index <= self.hashed_chunks:
            raise TransferError(
                f"{self.path}: the receiver has lost what it had, and standard input cannot be read again"
            )

    def read(self, index: int, *, into: memoryview) -> tuple[int, bytes] | None:
        """Read the next chunk, or one that is kept; return its length and digest. None at the end, or when stopped.

        Raises TransferError.
        """
        if index not in self._kept and not self._read_next(index):
            return None
        chunk = memoryview(self._kept[index])
        into[: len(chunk)] = chunk
        return len(chunk), chunk_digest([chunk])

    def _read_next(self, index: int) -> bool:
        if index != self.hashed_chunks or self.chunks is not None or not self._fill():
            return False
        chunk, self._begun = bytes(self._begun), bytearray()
        self._kept[index] = chunk
        self.digest.update(memoryview(chunk))
        self.size += len(chunk)
        self.hashed_chunks += 1
        return True

    def _fill(self) -> bool:
        """Read until a chunk is full, its time is over, or the end; return whether there is one."""
        full_by = time.monotonic() + FILL_WITHIN_S if self._begun else math.inf
        while len(self._begun) < CHUNK_BYTES and self.chunks is None:
            if self._is_stopped.is_set():
                return False
            now = time.monotonic()
            if now >= full_by:
                break
            try:
                if not self._poll.poll(math.ceil(min(_LOOK_EVERY_S, full_by - now) * 1e3)):
                    continue
                piece = os.read(self._fd, CHUNK_BYTES - len(self._begun))
            except OSError as error:
                raise TransferError(f"{self.path}: cannot be read: {error.strerror}") from error
            if not self._begun:
                full_by = time.monotonic() + FILL_WITHIN_S
            self._begun += piece
            if not piece:
                self.chunks = self.hashed_chunks + bool(self._begun)
        return bool(self._begun)

    def take(self, taken: int) -> None:
        """Drop the leading chunks that the receiver has taken; they were read."""
        for index in range(self._taken, taken):
            del self._kept[index]
        self._taken = max(self._taken, taken)

    def close(self) -> None:
        """Drop what is kept."""
        self._kept.clear()
