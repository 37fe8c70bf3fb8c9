"""Memory of a program in the card, without a descriptor: a process has far fewer of these than of mappings.

Python's `mmap` keeps a descriptor of each mapping, and `devmem.Region` one more, to share it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Final

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED: Final = ctypes.c_void_p(-1).value


class MappedMemory:
    """A part of a memfd. `close` it when nothing uses its address, or a view, any more."""

    def __init__(self, fd: int, *, length: int, offset: int, writable: bool) -> None:
        """Map it. Raises OSError."""
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        address = _libc.mmap(None, length, protection, mmap.MAP_SHARED, fd, offset)
        if address in (None, _FAILED):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self.address: int = address
        self._length = length

    def view(self, offset: int, *, length: int) -> memoryview:
        """Return a part, to be read."""
        return memoryview((ctypes.c_ubyte * length).from_address(self.address + offset)).cast("B").toreadonly()

    def close(self) -> None:
        """Unmap it."""
        _libc.munmap(self.address, self._length)
