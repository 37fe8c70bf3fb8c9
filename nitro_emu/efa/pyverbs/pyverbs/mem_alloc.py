"""Memory outside of Python's heap: pages of their own, by mmap(2)."""

from __future__ import annotations

import ctypes
import mmap
import os

from pyverbs.pyverbs_error import PyverbsError

_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def madvise(addr: int, length: int) -> None:
    """Tell the kernel that the contents of these pages are not needed any more."""
    start = addr // mmap.PAGESIZE * mmap.PAGESIZE
    if _libc.madvise(start, addr + length - start, mmap.MADV_DONTNEED):
        raise PyverbsError(f"madvise failed: {os.strerror(ctypes.get_errno())}", ctypes.get_errno())
