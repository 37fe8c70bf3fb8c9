"""A disk in memory that fails as disks do: it loses what was not synchronised, tears it, and refuses."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

SECTOR_BYTES = 512
"""What a disk writes whole."""


@dataclass
class VirtualFile:
    disk: VirtualDisk
    on_disk: bytearray = field(default_factory=bytearray)
    """What a loss of power leaves."""
    cached: bytearray = field(default_factory=bytearray)
    """What a read returns."""
    dirty: list[tuple[int, bytes]] = field(default_factory=list)

    def read(self, into: memoryview, *, offset: int) -> None:
        self.disk.check()
        have = bytes(self.cached[offset : offset + len(into)])
        into[:] = have.ljust(len(into), b"\0")

    def write(self, parts: Sequence[memoryview | bytes], *, offset: int) -> None:
        self.disk.check()
        if self.disk.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        data = b"".join(parts)
        _put(self.cached, offset, data)
        self.dirty.append((offset, data))

    def sync(self) -> None:
        self.disk.check()
        dirty, self.dirty = self.dirty, []
        if self.disk.fails_sync:  # as Linux: the pages are clean afterwards, and were not written
            raise OSError(errno.EIO, "Input/output error")
        for offset, data in dirty:
            _put(self.on_disk, offset, data)

    def punch(self, offset: int, *, length_bytes: int) -> None:
        self.write([bytes(length_bytes)], offset=offset)

    def size_bytes(self) -> int:
        return len(self.cached)

    def close(self) -> None:
        pass

    def lose_power(self, random: Random) -> None:
        """Keep any of the sectors that were not synchronised."""
        for offset, data in self.dirty:
            at = 0
            while at < len(data):
                end = min(len(data), at + SECTOR_BYTES - (offset + at) % SECTOR_BYTES)
                if random.random() < 0.5:
                    _put(self.on_disk, offset + at, data[at:end])
                at = end
        self.dirty = []
        self.cached = bytearray(self.on_disk)


@dataclass
class VirtualDisk:
    files: dict[str, VirtualFile] = field(default_factory=dict)
    fails_sync: bool = False
    is_full: bool = False
    is_dead: bool = False
    """Its server has ended; the next one has another `VirtualDisk` of the same files."""

    def open(self, name: str, *, size_bytes: int = 0) -> VirtualFile:
        file = self.files.setdefault(name, VirtualFile(self))
        if len(file.cached) < size_bytes:
            file.cached = file.cached.ljust(size_bytes, b"\0")
        return file

    def check(self) -> None:
        if self.is_dead:
            raise OSError(errno.EIO, "the server has ended")

    def after_kill(self) -> VirtualDisk:
        """Return what the next server finds after SIGKILL: all that was written."""
        return self._next()

    def after_power_loss(self, random: Random) -> VirtualDisk:
        """Return what the next server finds after a loss of power."""
        for file in self.files.values():
            file.lose_power(random)
        return self._next()

    def _next(self) -> VirtualDisk:
        self.is_dead = True
        new = VirtualDisk()
        for name, file in self.files.items():
            new.files[name] = VirtualFile(new, file.on_disk, file.cached, file.dirty)
        return new


def _put(content: bytearray, offset: int, data: bytes) -> None:
    if len(content) < offset + len(data):
        content.extend(bytes(offset + len(data) - len(content)))
    content[offset : offset + len(data)] = data
