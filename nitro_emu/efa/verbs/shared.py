"""What a card shares with this process: memory that it maps, and descriptors by which the card wakes a program.

A mapping is released when nothing refers to it any more: the rings' owners drop their views when they are closed. An
event is 8 bytes, a number of events as from an eventfd.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nitro_emu.errors import VerbsError

_NUMBER: Final = struct.Struct("<Q")
_MOST_BYTES: Final = 64 * _NUMBER.size
_OWN_FDS: Final = Path("/proc/self/fd")


def map_shared(fd: int, *, size_bytes: int, writable: bool) -> mmap.mmap:
    """Map all of a descriptor that the card has sent. Raises VerbsError: shorter than `size_bytes`, not mappable."""
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    try:
        if (length := os.fstat(fd).st_size) < size_bytes:
            raise VerbsError(errno.EPROTO, f"the card shares {length} bytes where {size_bytes} are needed")
        return mmap.mmap(fd, length, mmap.MAP_SHARED, protection)
    except OSError as error:
        raise VerbsError(
            error.errno or errno.EINVAL, f"the card's memory cannot be mapped: {error.strerror}"
        ) from error


def words_of(memory: mmap.mmap) -> memoryview:
    """Return the memory as 32-bit words, each of which is stored and loaded at once."""
    return memoryview(memory).cast("B").cast("I")


def take_events(fd: int) -> int | None:
    """Return how many events there were since the last call; None: the card's end is closed. Raises BlockingIOError."""
    data = os.read(fd, _MOST_BYTES)
    return sum(number for (number,) in _NUMBER.iter_unpack(data)) if data else None


@dataclass(frozen=True, slots=True)
class Backing:
    """A range of memory as another process can map it."""

    fd: int
    """A duplicate of the descriptor. The caller closes it."""

    offset: int
    """Of the range, in bytes from the descriptor's beginning."""


def backing_of(address: int, *, length: int) -> Backing:
    """Return what `length` bytes from `address` are a mapping of. Raises VerbsError: no shared mapping (EFAULT).

    A card can only use memory that it can map, so it must be a shared mapping of a descriptor that this process still
    has open. A `devmem.Region` is; memory from malloc is not.
    """
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        bounds, access, offset, device, inode = line.split(maxsplit=5)[:5]
        start, end = (int(bound, 16) for bound in bounds.split("-"))
        if start <= address < end:
            if length > end - address or access[3] != "s":
                break
            return Backing(_duplicate(device=device, inode=int(inode)), int(offset, 16) + address - start)
    raise VerbsError(
        errno.EFAULT,
        f"{length} bytes at {address:#x} are not within one shared mapping; a card maps memory by its descriptor: "
        "allocate it as a devmem.Region",
    )


def _duplicate(*, device: str, inode: int) -> int:
    """Return a duplicate of the descriptor of a file that is mapped. `device`: as in /proc/self/maps."""
    major, minor = (int(part, 16) for part in device.split(":"))
    for entry in _OWN_FDS.iterdir():
        try:
            status = os.fstat(int(entry.name))
            if status.st_ino == inode and (os.major(status.st_dev), os.minor(status.st_dev)) == (major, minor):
                return os.dup(int(entry.name))
        except OSError:
            continue  # it has been closed since, such as the one of this listing
    raise VerbsError(
        errno.EFAULT, f"the descriptor of file {inode} on {device} is closed; a card needs it to map the memory"
    )
