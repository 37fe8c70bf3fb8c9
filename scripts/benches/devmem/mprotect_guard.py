"""A guard that verifies with the memory management unit that a process copies no payload.

`guarded` removes this process's access to a region's pages (mprotect, PROT_NONE), and restores it only during the
system calls that move datagrams. Any other access to payload, by any library or instruction, ends the process with
SIGSEGV. So a transfer that succeeds has copied nothing; this does not rely on the transport's own counter. A run that
gathers must be killed, which shows that the guard works.
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
    """Allow access to `region` only during the system calls, while the block runs."""

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
