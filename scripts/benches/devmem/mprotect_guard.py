"""A witness that no byte is copied by a process: the processor's memory management unit.

`guarded` takes from this process every right to a region's pages (mprotect, PROT_NONE), and gives it back only for the
length of the system calls that move datagrams. Whatever else touches a byte of payload, to copy it, to look at it, by
whatever library or instruction, ends the process with SIGSEGV. So a transfer that ends well has copied nothing; it does
not depend on the transport's own counter. That the witness can see is shown by one that gathers, which has to die.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from devmem import Region
from srd.io import syscalls

_ALL, _NONE = mmap.PROT_READ | mmap.PROT_WRITE, 0  # PROT_NONE
_mprotect = ctypes.CDLL(None, use_errno=True).mprotect
_mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def _protect(region: Region, protection: int) -> None:
    if _mprotect(region.address, region.size_bytes, protection):
        raise OSError(ctypes.get_errno(), f"mprotect: {os.strerror(ctypes.get_errno())}")


@contextmanager
def guarded(region: Region) -> Iterator[None]:
    """Let nothing but the system calls touch `region` meanwhile."""

    def during(call: Callable[..., int]) -> Callable[..., int]:
        def guard(*arguments: Any, **options: Any) -> int:
            _protect(region, _ALL)
            try:
                return call(*arguments, **options)
            finally:
                _protect(region, _NONE)

        return guard

    calls = syscalls.sendmmsg, syscalls.recvmmsg
    syscalls.sendmmsg, syscalls.recvmmsg = map(during, calls)
    _protect(region, _NONE)
    try:
        yield
    finally:
        syscalls.sendmmsg, syscalls.recvmmsg = calls
        _protect(region, _ALL)
