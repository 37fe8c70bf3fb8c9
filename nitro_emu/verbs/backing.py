"""Which memfd an address of this process belongs to.

A card can only use memory that it can map, so memory that is registered by its address has to be a shared mapping of a
descriptor that this process still has open. A `devmem.Region` is; memory from malloc is not.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from nitro_emu.errors import VerbsError

_OWN_FDS = Path("/proc/self/fd")


@dataclass(frozen=True, slots=True)
class Backing:
    """A range of memory as another process can map it."""

    fd: int
    """A duplicate of the descriptor. The caller closes it."""

    offset: int
    """Of the range, in bytes from the descriptor's beginning."""


def backing_of(address: int, *, length: int) -> Backing:
    """Return what `length` bytes from `address` are a mapping of. Raises VerbsError: no shared mapping (EFAULT)."""
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
