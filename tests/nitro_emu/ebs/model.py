"""A device that checks what the front promises its servers, and can hold writes back or fail."""

from __future__ import annotations

import asyncio
import errno

from nitro_emu.ebs.device import BLOCK_BYTES, BlockExtent
from nitro_emu.ebs.errors import DeviceError
from nitro_emu.ebs.memory import MemoryDevice


class CheckedDevice(MemoryDevice):
    """Takes whole blocks only, and no two writes of one block at a time; it yields before and after each change."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(size_bytes)
        self.calls: list[tuple[str, int, int]] = []
        self.flushes = 0
        self.gate = asyncio.Event()
        """Writes wait for it."""
        self.gate.set()
        self.error: DeviceError | None = None
        """What the next calls fail with."""
        self._written: set[int] = set()  # blocks that are being written

    async def read(self, offset: int, *, into: memoryview) -> None:
        self._called("read", offset, len(into))
        await asyncio.sleep(0)
        await super().read(offset, into=into)

    async def write(self, offset: int, *, data: memoryview, fua: bool) -> None:
        self._called("write fua" if fua else "write", offset, len(data))
        blocks = set(range(offset // BLOCK_BYTES, (offset + len(data)) // BLOCK_BYTES))
        assert not blocks & self._written, "two writes of one block at a time"
        self._written |= blocks
        await asyncio.sleep(0)
        await self.gate.wait()
        await super().write(offset, data=data, fua=fua)
        self._written -= blocks

    async def flush(self) -> None:
        self._called("flush", 0, 0)
        self.flushes += 1

    async def trim(self, offset: int, *, length_bytes: int) -> None:
        self._called("trim", offset, length_bytes)
        await super().trim(offset, length_bytes=length_bytes)

    async def extents(self, offset: int, *, length_bytes: int) -> list[BlockExtent]:
        self._called("extents", offset, length_bytes)
        return await super().extents(offset, length_bytes=length_bytes)

    def _called(self, name: str, offset: int, length_bytes: int) -> None:
        assert offset % BLOCK_BYTES == length_bytes % BLOCK_BYTES == 0
        self.calls.append((name, offset, length_bytes))
        if self.error is not None:
            raise self.error


def disk_full() -> DeviceError:
    return DeviceError(errno.ENOSPC, "the servers' disks are full; make room")
