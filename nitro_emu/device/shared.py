"""Memory that the card and a program share.

The card makes the memory, sealed against shrinking and growing (`devmem.Region`). What only the card may write gets
F_SEAL_FUTURE_WRITE too, after the card has mapped it: a descriptor that is merely opened read-only could be opened
again for writing through /proc/self/fd.
"""

from __future__ import annotations

import fcntl
import os
from typing import Final

from devmem.errors import RegionError
from devmem.region import Region
from nitro_emu.abi.admin import AdminStatus
from nitro_emu.errors import AdminError

F_SEAL_FUTURE_WRITE: Final = 0x10
"""Linux 5.1: no new writable mapping, and no write; Python has no name for it yet."""


def shared_region(size_bytes: int, *, name: str) -> Region:
    """Return memory that the program may write. Raises AdminError when there is none."""
    try:
        return Region(size_bytes, name=name)
    except (RegionError, OSError) as error:
        raise AdminError(AdminStatus.RESOURCE_ALLOCATION_FAILURE, f"{name}: {error}") from error


def card_written_region(size_bytes: int, *, name: str) -> Region:
    """Return memory that only the card may write. Raises AdminError when there is none."""
    region = shared_region(size_bytes, name=name)
    fcntl.fcntl(region.fd, fcntl.F_ADD_SEALS, F_SEAL_FUTURE_WRITE)
    return region


def new_eventfd() -> int:
    """Return an eventfd. Raises AdminError when no descriptor is left."""
    try:
        return os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    except OSError as error:
        raise AdminError(AdminStatus.RESOURCE_ALLOCATION_FAILURE, f"eventfd: {error.strerror}") from error


def signal_eventfd(fd: int) -> None:
    """Make an eventfd readable. A counter that is full (a program that never reads it) is readable already."""
    try:
        os.eventfd_write(fd, 1)
    except BlockingIOError:
        return
