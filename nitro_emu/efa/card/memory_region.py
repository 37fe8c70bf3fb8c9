"""Registered memory of programs: keys, bounds and rights; and what the protocol core asks of it.

1. A program registers a part of a memfd, sealed against shrinking: the card maps it, and would be killed by an access
   beyond its end (SIGBUS). The card never allocates its pages: they belong to the program.
2. An address in a work request is the program's own. `CardMemoryRegion.place` translates it to an address of the card.
3. Packets of writes and reads carry the rkey, the queue pair and the program's address. A region is open to them only
   through a queue pair of its own protection domain.
4. A region that is deregistered is closed to everything at once, and unmapped after the last request that uses it.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Callable

from devmem.registry import Access
from nitro_emu.efa.abi.enums import AdminStatus
from nitro_emu.efa.abi.memory import PAGE_BYTES
from nitro_emu.efa.card.mapped_memory import MappedMemory
from nitro_emu.efa.card.objects import CardProtectionDomain
from nitro_emu.errors import AdminError


class CardMemoryRegion:
    """A registered range. `uses` counts the requests in flight that read or write it."""

    __slots__ = (
        "_on_unused",
        "_region",
        "_view",
        "base",
        "iova",
        "is_registered",
        "length",
        "lkey",
        "pd",
        "permissions",
        "rkey",
        "uses",
    )

    def __init__(
        self,
        region: MappedMemory,
        *,
        pd: CardProtectionDomain,
        iova: int,
        length: int,
        permissions: int,
        lkey: int,
        rkey: int,
        on_unused: Callable[[CardMemoryRegion], None],
    ) -> None:
        """`on_unused` is called when it was deregistered and nothing uses it any more; it calls `unmap`."""
        in_page = iova % PAGE_BYTES  # a page of the program begins where one of the memfd does
        self._region = region
        self._view = region.view(in_page, length=length)
        self.base = region.address + in_page
        self.iova = iova
        self.length = length
        self.pd = pd
        self.permissions = permissions
        self.lkey = lkey
        self.rkey = rkey
        self.uses = 0
        self._on_unused = on_unused
        self.is_registered = True
        pd.users += 1

    @property
    def view(self) -> memoryview:
        """All bytes of it, while it is mapped."""
        return self._view

    def place(self, address: int, *, length: int) -> int | None:
        """Return where `length` bytes at the program's `address` lie in the card; None: not within the range."""
        offset = address - self.iova
        if not self.is_registered or offset < 0 or length < 0 or offset + length > self.length:
            return None
        return self.base + offset

    def release(self, uses: int = 1) -> None:
        """Note that requests that use it have ended."""
        self.uses -= uses
        self._end_if_unused()

    def deregister(self) -> None:
        """Close it to everything, at once; it stays mapped as long as something uses it."""
        self.is_registered = False
        self.pd.users -= 1
        self._end_if_unused()

    def _end_if_unused(self) -> None:
        if not self.is_registered and not self.uses:
            self._view.release()
            self._on_unused(self)

    def unmap(self) -> None:
        """Unmap it; may be called in any thread, as it takes a while to free much memory."""
        self._region.close()


def map_untrusted(fd: int, *, offset: int, length: int, permissions: int) -> MappedMemory:
    """Map the memory that a program wants to register. Raises AdminError with the status that it gets."""
    if length <= 0 or offset % PAGE_BYTES:
        raise AdminError(AdminStatus.ILLEGAL_PARAMETER, f"memory: {length} bytes from {offset} of a memfd")
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        has_range = offset + length <= os.fstat(fd).st_size
    except OSError as error:
        raise AdminError(AdminStatus.ILLEGAL_PARAMETER, f"memory: no memfd ({error.strerror})") from error
    if not seals & fcntl.F_SEAL_SHRINK:
        raise AdminError(AdminStatus.ILLEGAL_PARAMETER, "memory: the memfd lacks F_SEAL_SHRINK; seal it")
    if os.fstatvfs(fd).f_bsize != PAGE_BYTES:  # a hole in huge pages that cannot be filled again would be SIGBUS
        raise AdminError(AdminStatus.ILLEGAL_PARAMETER, "memory: huge pages are not supported")
    if not has_range:
        raise AdminError(AdminStatus.ILLEGAL_PARAMETER, f"memory: {length} bytes from {offset} are not in the memfd")
    writable = bool(permissions & (Access.LOCAL_WRITE | Access.REMOTE_WRITE))
    try:
        return MappedMemory(fd, length=length, offset=offset, writable=writable)
    except OSError as error:
        raise AdminError(AdminStatus.RESOURCE_ALLOCATION_FAILURE, f"memory: {error.strerror}") from error


def new_rkey(taken: dict[int, CardMemoryRegion]) -> int:
    """Return an rkey that cannot be guessed and is not 0: 32 bits are all that EFA's descriptors have."""
    rkey = 0
    while rkey == 0 or rkey in taken:
        rkey = secrets.randbits(32)
    return rkey
