"""A block device in this process's memory, sparse: for trying clients, and as the measure of what the front costs."""

from __future__ import annotations

import errno
import mmap
from typing import Final

from nitro_emu.ebs.device import BLOCK_BYTES, BlockExtent
from nitro_emu.ebs.errors import DeviceError

_HOLE: Final = 0
_DATA: Final = 1
MAX_EXTENTS: Final = 1024
"""That one call returns."""


class MemoryDevice:
    """A `BlockDevice` that ends with its process, and so has nothing to flush."""

    def __init__(self, size_bytes: int) -> None:
        """`size_bytes`: a multiple of BLOCK_BYTES."""
        self.size_bytes = size_bytes
        self._memory = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._bytes = memoryview(self._memory)
        self._blocks = bytearray(size_bytes // BLOCK_BYTES)  # of each block _HOLE or _DATA

    async def read(self, offset: int, *, into: memoryview) -> None:
        """Read; see BlockDevice."""
        self._check(offset, len(into))
        into[:] = self._bytes[offset : offset + len(into)]

    async def write(self, offset: int, *, data: memoryview, fua: bool) -> None:  # noqa: ARG002 - nothing outlives it
        """Write; see BlockDevice."""
        self._check(offset, len(data))
        self._bytes[offset : offset + len(data)] = data
        self._mark(offset, len(data), kind=_DATA)

    async def flush(self) -> None:
        """Do nothing."""

    async def trim(self, offset: int, *, length_bytes: int) -> None:
        """Give pages back to the kernel, which makes zeroes of them."""
        self._check(offset, length_bytes)
        if length_bytes:
            self._memory.madvise(mmap.MADV_DONTNEED, offset, length_bytes)
            self._mark(offset, length_bytes, kind=_HOLE)

    async def write_zeroes(self, offset: int, *, length_bytes: int, fua: bool, may_trim: bool) -> None:  # noqa: ARG002
        """Give pages back; with `may_trim` false they count as allocated."""
        await self.trim(offset, length_bytes=length_bytes)
        if not may_trim:
            self._mark(offset, length_bytes, kind=_DATA)

    async def extents(self, offset: int, *, length_bytes: int) -> list[BlockExtent]:
        """Return runs of holes, and of what was written."""
        self._check(offset, length_bytes)
        at, end = offset // BLOCK_BYTES, (offset + length_bytes) // BLOCK_BYTES
        found: list[BlockExtent] = []
        while at < end and len(found) < MAX_EXTENTS:
            kind = self._blocks[at]
            other = self._blocks.find(_HOLE + _DATA - kind, at, end)
            until = end if other < 0 else other
            found.append(BlockExtent((until - at) * BLOCK_BYTES, hole=kind == _HOLE, zero=kind == _HOLE))
            at = until
        return found

    def _mark(self, offset: int, length_bytes: int, *, kind: int) -> None:
        first, count = offset // BLOCK_BYTES, length_bytes // BLOCK_BYTES
        self._blocks[first : first + count] = bytes([kind]) * count

    def _check(self, offset: int, length_bytes: int) -> None:
        if offset < 0 or offset % BLOCK_BYTES or length_bytes % BLOCK_BYTES or offset + length_bytes > self.size_bytes:
            raise DeviceError(errno.EINVAL, f"{length_bytes} bytes at {offset} are not blocks of this device")
