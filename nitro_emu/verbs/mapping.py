"""Mappings of the memory that a card shares with this process.

A mapping is released when nothing refers to it any more: the rings' owners drop their views when they are closed.
"""

from __future__ import annotations

import errno
import mmap
import os

from nitro_emu.errors import VerbsError


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
