"""Requests of a host, of any offset and length, carried out on a device of blocks.

    front = Front(device, limits=Limits(Provisioned()))
    answer = await front.carry_out(VolumeRequest(command=BlockOperation.READ, offset=512, length_bytes=1024))

What is no whole block is read, changed and written, while no other write of it is under way (`WriteOrder`). Trimming
gives up whole blocks only. Every request is counted, and measured from its arrival to its end.
"""

from __future__ import annotations

import time
from typing import Final

from nitro_emu.ebs.device import BLOCK_BYTES, BlockDevice, BlockExtent
from nitro_emu.ebs.limits import Limits
from nitro_emu.ebs.order import WriteOrder
from nitro_emu.ebs.request import CHANGES, BlockOperation, RequestState, VolumeRequest
from nitro_emu.ebs.statistics import Statistics

Answer = memoryview | list[BlockExtent] | None
"""Bytes of a READ, extents of EXTENTS, nothing of others."""

_NOTHING: Final = memoryview(b"")


class Front:
    """A volume as its host sees it. Its clients share it, so that each sees what another has written."""

    def __init__(self, device: BlockDevice, *, limits: Limits) -> None:
        self.size_bytes = device.size_bytes
        self.limits = limits
        self.statistics = Statistics()
        self._device = device
        self._order = WriteOrder()

    async def carry_out(self, request: VolumeRequest, *, data: memoryview = _NOTHING) -> Answer:
        """Carry a request out, and return its answer. `data`: of a WRITE. Raises DeviceError."""
        done, began_at = self.statistics.by_command[request.command], time.perf_counter()
        self.statistics.queue_length += 1
        try:
            answer = await self._carry_out(request, data)
            request.become(RequestState.DONE)
        except BaseException:
            request.become(RequestState.FAILED)
            done.errors += 1
            raise
        finally:
            self.statistics.queue_length -= 1
        done.operations += 1
        done.bytes += request.length_bytes
        done.latency.add((time.perf_counter() - began_at) * 1e6)
        return answer

    async def _carry_out(self, request: VolumeRequest, data: memoryview) -> Answer:
        if request.command in {BlockOperation.READ, BlockOperation.WRITE}:
            await self.limits.admit(request.length_bytes)
        elif request.command in CHANGES:
            await self.limits.admit(0)  # one operation, and no bytes: none are carried
        if request.command in CHANGES:
            first, end = request.offset // BLOCK_BYTES, _up(request.offset + request.length_bytes) // BLOCK_BYTES
            async with self._order.turn(first, end):
                request.become(RequestState.ISSUED)
                await self._change(request, data)
            return None
        request.become(RequestState.ISSUED)
        if request.command is BlockOperation.READ:
            return await self._read(request.offset, request.length_bytes)
        if request.command is BlockOperation.EXTENTS:
            return await self._extents(request.offset, request.length_bytes)
        await self._device.flush()
        return None

    async def _change(self, request: VolumeRequest, data: memoryview) -> None:
        if request.command is BlockOperation.WRITE:
            await self._write(request.offset, data=data, fua=request.fua)
            return
        begin, end = _up(request.offset), _down(request.offset + request.length_bytes)
        if request.command is BlockOperation.TRIM:
            if begin < end:
                await self._device.trim(begin, length_bytes=end - begin)
            if request.fua:
                await self._device.flush()
            return
        await self._write_zeroes(request, begin, end)

    async def _write_zeroes(self, request: VolumeRequest, begin: int, end: int) -> None:
        """Write zeroes to whole blocks from `begin` to `end`, and around them."""
        last = request.offset + request.length_bytes
        if begin >= end:
            await self._write(request.offset, data=memoryview(bytes(request.length_bytes)), fua=request.fua)
            return
        for at, until in ((request.offset, begin), (end, last)):
            if at < until:
                await self._write(at, data=memoryview(bytes(until - at)), fua=request.fua)
        length_bytes = end - begin
        await self._device.write_zeroes(begin, length_bytes=length_bytes, fua=request.fua, may_trim=request.may_trim)

    async def _read(self, offset: int, length_bytes: int) -> memoryview:
        begin = _down(offset)
        buffer = memoryview(bytearray(_up(offset + length_bytes) - begin))
        if buffer:
            await self._device.read(begin, into=buffer)
        return buffer[offset - begin : offset - begin + length_bytes]

    async def _write(self, offset: int, *, data: memoryview, fua: bool) -> None:
        """Write any bytes; the caller has the turn of their blocks."""
        if not data:
            return
        begin, last = _down(offset), offset + len(data)
        end = _up(last)
        if (begin, end) == (offset, last):
            await self._device.write(offset, data=data, fua=fua)
            return
        buffer = memoryview(bytearray(end - begin))
        if begin != offset:
            await self._device.read(begin, into=buffer[:BLOCK_BYTES])
        if end != last and (begin == offset or end - begin > BLOCK_BYTES):
            await self._device.read(end - BLOCK_BYTES, into=buffer[-BLOCK_BYTES:])
        buffer[offset - begin : last - begin] = data
        await self._device.write(begin, data=buffer, fua=fua)

    async def _extents(self, offset: int, length_bytes: int) -> list[BlockExtent]:
        """Return extents that begin at `offset` and end at most with the request."""
        begin = _down(offset)
        found = await self._device.extents(begin, length_bytes=_up(offset + length_bytes) - begin)
        clipped: list[BlockExtent] = []
        at, last = begin, offset + length_bytes
        for extent in found:
            until = min(at + extent.length_bytes, last)
            if until > max(at, offset):
                clipped.append(BlockExtent(until - max(at, offset), hole=extent.hole, zero=extent.zero))
            at += extent.length_bytes
        return clipped


def _down(offset: int) -> int:
    return offset - offset % BLOCK_BYTES


def _up(offset: int) -> int:
    return offset + -offset % BLOCK_BYTES
