"""Registered memory, as requests name it."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass

from devmem.region import Region
from nitro_emu.errors import VerbsError
from nitro_emu.verbs import MemoryRegion


class Memory:
    """A registered part of a region. Made by `Device.register`; offsets count from its beginning."""

    __slots__ = ("_offset", "_registration", "address", "length", "lkey", "region", "rkey")

    def __init__(self, registration: MemoryRegion, region: Region, *, offset: int) -> None:
        """`offset`: of the registered part in the region."""
        self.region = region
        self.address = registration.address
        """Where it begins: with an offset, the address of a remote write or read."""
        self.length = registration.length
        self.lkey, self.rkey = registration.lkey, registration.rkey
        self._registration = registration
        self._offset = offset

    def slice(self, offset: int = 0, *, length: int | None = None) -> Slice:
        """Return `length` bytes from `offset`, by default to the end. Raises VerbsError: out of bounds (EINVAL)."""
        length = self.length - offset if length is None else length
        if offset < 0 or length < 0 or offset + length > self.length:
            raise VerbsError(
                errno.EINVAL, f"bytes {offset} to {offset + length} are not within registered memory of {self.length}"
            )
        return Slice(self, offset, length)

    def view(self, offset: int, *, length: int) -> memoryview:
        """Return a view. The region cannot be closed while it exists. Raises RegionError: the region is closed."""
        return self.region.view(self._offset + offset, length=length)

    async def close(self) -> None:
        """End the registration: requests that use it end in error at both ends. Raises VerbsError."""
        await asyncio.to_thread(self._registration.close)


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of registered memory. Made by `Memory.slice`."""

    memory: Memory
    offset: int
    length: int

    @property
    def address(self) -> int:
        """Where it begins."""
        return self.memory.address + self.offset

    def view(self) -> memoryview:
        """Return a view of it."""
        return self.memory.view(self.offset, length=self.length)
