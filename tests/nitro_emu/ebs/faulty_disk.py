"""A directory whose files fail as disks do, in a server that is a process.

What was written and not synchronised lies in the process: when it is killed, that is lost but for some of its sectors,
as with a computer that loses power. While there is a file FAILS_SYNC beside the files' directory, synchronising fails
as on Linux: with EIO, and the pages are clean afterwards, and were not written. While there is a file LIES, nothing is
synchronised, and that is said to have been done: the sabotage.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Sequence
from pathlib import Path
from random import Random

from nitro_emu.ebs.server.disk import DiskFile, OsDisk
from tests.nitro_emu.ebs.virtual_disk import SECTOR_BYTES

FAILS_SYNC, LIES = "fails-sync", "lies"


class FaultyFile:
    """A file of the operating system, with its unsynchronised writes before it."""

    def __init__(self, file: DiskFile, disk: FaultyDisk) -> None:
        self._file = file
        self._disk = disk
        self._unsynced: list[tuple[int, bytes]] = []  # in their order
        self._lock = threading.Lock()  # `sync` is another thread's

    def read(self, into: memoryview, *, offset: int) -> None:
        with self._lock:
            self._file.read(into, offset=offset)
            for at, data in self._unsynced:
                begin, end = max(at, offset), min(at + len(data), offset + len(into))
                if begin < end:
                    into[begin - offset : end - offset] = data[begin - at : end - at]

    def write(self, parts: Sequence[memoryview | bytes], *, offset: int) -> None:
        data = b"".join(parts)
        with self._lock:
            self._unsynced.append((offset, data))
            if self._disk.random.random() < 0.5:  # the kernel writes back when it likes, and sectors one by one
                at = self._disk.random.randrange(len(data)) // SECTOR_BYTES * SECTOR_BYTES
                self._file.write([data[at : at + SECTOR_BYTES]], offset=offset + at)

    def sync(self) -> None:
        with self._lock:
            written, self._unsynced = self._unsynced, []
            if self._disk.fails_sync:
                raise OSError(errno.EIO, "Input/output error")
            if self._disk.lies:
                self._unsynced = written
                return
            for offset, data in written:
                self._file.write([data], offset=offset)
        self._file.sync()

    def punch(self, offset: int, *, length_bytes: int) -> None:
        self.write([bytes(length_bytes)], offset=offset)

    def size_bytes(self) -> int:
        return max([self._file.size_bytes(), *(offset + len(data) for offset, data in self._unsynced)])

    def close(self) -> None:
        self._file.close()


class FaultyDisk:
    """The files of one volume."""

    def __init__(self, path: Path, *, random: Random) -> None:
        self._disk = OsDisk(path)
        self._directory = path.parent
        self.random = random

    @property
    def fails_sync(self) -> bool:
        return (self._directory / FAILS_SYNC).exists()

    @property
    def lies(self) -> bool:
        return (self._directory / LIES).exists()

    def open(self, name: str, *, size_bytes: int = 0) -> FaultyFile:
        return FaultyFile(self._disk.open(name, size_bytes=size_bytes), self)
