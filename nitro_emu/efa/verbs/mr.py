"""Registered memory: what the card may read and write."""

from __future__ import annotations

import errno
import os
from typing import Final, Self

from devmem.errors import RegionError
from devmem.region import Region
from devmem.registry import Access
from nitro_emu.efa.abi import commands
from nitro_emu.efa.abi.memory import PAGE_BYTES
from nitro_emu.efa.verbs.resource import ProtectionDomain, Resource
from nitro_emu.efa.verbs.shared import backing_of
from nitro_emu.errors import VerbsError

_PAGE_SHIFT: Final = PAGE_BYTES.bit_length() - 1
_ALLOWED: Final = int(Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ)


class MemoryRegion(Resource):
    """Registered memory of this process: `length` bytes from `address`, for this protection domain's queue pairs.

    `lkey` names it in own requests, `rkey` in those of others. `region` is kept as long as the registration.
    """

    def __init__(
        self,
        pd: ProtectionDomain,
        region: Region,
        *,
        offset: int = 0,
        length: int | None = None,
        access: Access = Access.LOCAL_WRITE,
        iova: int | None = None,
    ) -> None:
        """Register a part of a region, by default from `offset` to its end. Raises VerbsError.

        `iova`: the address of its first byte in requests, by default that in this process.
        """
        length = region.size_bytes - offset if length is None else length
        if region.fd < 0:
            raise VerbsError(errno.EINVAL, "the region is closed")
        if offset < 0 or length <= 0 or offset + length > region.size_bytes:
            raise VerbsError(
                errno.EINVAL, f"bytes {offset} to {offset + length} are not within a region of {region.size_bytes}"
            )
        self.region: Region | None = region
        address = region.address + offset if iova is None else iova
        self._register(pd, region.fd, address=address, offset=offset, length=length, access=access)

    @classmethod
    def allocate(cls, pd: ProtectionDomain, *, length: int, access: Access = Access.LOCAL_WRITE) -> Self:
        """Register new memory. Raises VerbsError."""
        try:
            region = Region(length, name="nitro-verbs")
        except RegionError as error:
            raise VerbsError(errno.EINVAL if length <= 0 else errno.ENOMEM, f"{error}") from error
        return cls(pd, region, length=length, access=access)

    @classmethod
    def at(cls, pd: ProtectionDomain, *, address: int, length: int, access: Access = Access.LOCAL_WRITE) -> Self:
        """Register memory by its address, which must be a shared mapping (see `backing_of`). Raises VerbsError.

        The caller keeps the memory as long as the registration.
        """
        if length <= 0:
            raise VerbsError(errno.EINVAL, f"{length} bytes cannot be registered")
        backing = backing_of(address, length=length)
        self = cls.__new__(cls)
        self.region = None
        try:
            self._register(pd, backing.fd, address=address, offset=backing.offset, length=length, access=access)
        finally:
            os.close(backing.fd)
        return self

    def _register(
        self, pd: ProtectionDomain, fd: int, *, address: int, offset: int, length: int, access: Access
    ) -> None:
        if access & ~_ALLOWED:
            raise VerbsError(errno.EOPNOTSUPP, f"access {access:#x} is more than local write, remote write and read")
        self.pd, self.address, self.length, self.access = pd, address, length, access
        in_page = address % PAGE_BYTES
        command = commands.RegMr(
            pd=pd.number,
            memory_offset=offset - in_page,
            mr_length=length,
            flags=_PAGE_SHIFT,
            permissions=int(access),
            page_num=-(-(in_page + length) // PAGE_BYTES),
            iova=address,
        )
        reply = pd.context.link.ask(command, fds=[fd])
        self.lkey, self.rkey = reply.l_key, reply.r_key
        self.interconnects = reply
        super().__init__(pd.context.link, destroy=commands.DeregMr(self.lkey))

    def release(self) -> None:
        """End the registration here. The region stays mapped as long as it is used elsewhere."""
        super().release()
        self.region = None
