"""Memory for a secret: never swapped, in no core dump, empty in a forked child, wiped at the end.

    with LockedSecret(32) as secret:
        chip.boot(..., secret=secret.view)               # writes the key into it
        engine.use(bytes(secret.view))                   # each copy is the user's own to care for

A copy that Python or a library makes of the bytes is ordinary memory, which nothing here can wipe; so a secret should
be handed on as the view.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
from contextlib import suppress
from typing import Final

from nitro_emu.closing import Closing
from nitro_emu.errors import TrustError

_WIPE_ON_FORK: Final = 18  # MADV_WIPEONFORK of <linux/mman.h>, which Python's mmap has no name for
_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.mlock.argtypes = _libc.munlock.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


class LockedSecret(Closing):
    """Bytes in locked memory, zero at first. A context manager: the end of the block wipes them."""

    def __init__(self, size: int) -> None:
        """Make room for `size` bytes, 1 or more. Raises TrustError if the memory cannot be locked."""
        if size < 1:
            raise ValueError(f"{size} bytes are no secret")
        self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._closed = False
        try:
            _lock(self._map, size)
            self._map.madvise(mmap.MADV_DONTDUMP)
            self._map.madvise(_WIPE_ON_FORK)
        except OSError as error:
            self._map.close()
            raise TrustError(f"a secret's memory cannot be protected: {error.strerror}") from error
        except TrustError:
            self._map.close()
            raise
        self._view = memoryview(self._map)

    @property
    def view(self) -> memoryview:
        """The bytes, writable. After `close` they are 0 for whoever still has a part of them, and this raises."""
        if self._closed:
            raise TrustError("the secret has been wiped; ask the security chip again")
        return self._view

    def close(self) -> None:
        """Wipe the bytes. The memory is given back when nobody has a view of it any more. May be called again."""
        if self._closed:
            return
        self._closed = True
        self._view[:] = bytes(len(self._view))
        self._view.release()
        with suppress(BufferError):  # somebody has a part of the view, which is zero now
            self._map.close()

    def __del__(self) -> None:
        with suppress(AttributeError):  # it was never made
            self.close()


def _lock(memory: mmap.mmap, size: int) -> None:
    """Lock pages into memory. Raises TrustError."""
    first = ctypes.c_char.from_buffer(memory)
    failed = _libc.mlock(ctypes.addressof(first), size)
    del first  # or the mapping could not be closed
    if failed:
        reason = os.strerror(ctypes.get_errno())
        soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        raise TrustError(
            f"a secret's {size} bytes cannot be locked in memory ({reason}; the limit is {soft} bytes); raise it with "
            "ulimit -l or, for systemd, LimitMEMLOCK="
        )
