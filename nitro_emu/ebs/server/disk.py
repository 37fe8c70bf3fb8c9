"""Files of a store: the seam below which a disk fails. Tests put one in place that loses, tears and refuses."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

_PUNCH_HOLE: Final = 0x03
"""FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE (fallocate(2))."""

_libc: Final = ctypes.CDLL(None, use_errno=True)


class DiskFile(Protocol):
    """A file. What fails raises OSError."""

    def read(self, into: memoryview, *, offset: int) -> None:
        """Read as much as `into` has; zeroes beyond the end."""

    def write(self, parts: Sequence[memoryview | bytes], *, offset: int) -> None:
        """Write one after the other, all of them."""

    def sync(self) -> None:
        """Return once what was written before lies on the disk. May be called in another thread."""

    def punch(self, offset: int, *, length_bytes: int) -> None:
        """Give the space up; it reads as zeroes."""

    def size_bytes(self) -> int:
        """Return its length."""

    def close(self) -> None:
        """Close it."""


class Disk(Protocol):
    """Where the files of a store lie."""

    def open(self, name: str, *, size_bytes: int = 0) -> DiskFile:
        """Open a file for both, made if missing, and at least so long: sparse. Raises OSError."""


class OsFile:
    """A file of the operating system."""

    def __init__(self, path: Path, *, size_bytes: int) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if os.fstat(self._fd).st_size < size_bytes:
            os.ftruncate(self._fd, size_bytes)

    def read(self, into: memoryview, *, offset: int) -> None:
        """See DiskFile."""
        while into and (got := os.preadv(self._fd, [into], offset)):
            into, offset = into[got:], offset + got
        into[:] = bytes(len(into))

    def write(self, parts: Sequence[memoryview | bytes], *, offset: int) -> None:
        """See DiskFile."""
        left = sum(len(part) for part in parts)
        wrote = os.pwritev(self._fd, parts, offset)
        if wrote < left:  # a disk is full, or a signal came
            rest = memoryview(b"".join(parts))[wrote:]
            while rest:
                offset += wrote
                wrote = os.pwrite(self._fd, rest, offset)
                rest = rest[wrote:]

    def sync(self) -> None:
        """See DiskFile."""
        os.fdatasync(self._fd)

    def punch(self, offset: int, *, length_bytes: int) -> None:
        """See DiskFile. A file system that cannot keeps the space; what is read is decided by the entries."""
        _libc.fallocate(self._fd, _PUNCH_HOLE, ctypes.c_int64(offset), ctypes.c_int64(length_bytes))

    def size_bytes(self) -> int:
        """See DiskFile."""
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        """See DiskFile."""
        os.close(self._fd)


class OsDisk:
    """A directory of the operating system."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self, name: str, *, size_bytes: int = 0) -> OsFile:
        """See Disk."""
        return OsFile(self._path / name, size_bytes=size_bytes)
