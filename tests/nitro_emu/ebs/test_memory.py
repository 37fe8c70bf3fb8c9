"""The device in memory: bytes, holes, bounds."""

from __future__ import annotations

import errno

import pytest

from nitro_emu.ebs.device import BLOCK_BYTES, BlockExtent
from nitro_emu.ebs.errors import DeviceError
from nitro_emu.ebs.memory import MemoryDevice

BLOCKS = 8


def hole(blocks: int) -> BlockExtent:
    return BlockExtent(blocks * BLOCK_BYTES, hole=True, zero=True)


def data(blocks: int) -> BlockExtent:
    return BlockExtent(blocks * BLOCK_BYTES, hole=False, zero=False)


async def all_of(device: MemoryDevice) -> bytes:
    into = bytearray(device.size_bytes)
    await device.read(0, into=memoryview(into))
    return bytes(into)


async def test_what_is_written_is_read_and_what_is_trimmed_is_zero() -> None:
    device = MemoryDevice(BLOCKS * BLOCK_BYTES)
    await device.write(BLOCK_BYTES, data=memoryview(b"x" * 3 * BLOCK_BYTES), fua=True)
    await device.trim(2 * BLOCK_BYTES, length_bytes=BLOCK_BYTES)
    await device.flush()
    x, zeroes = b"x" * BLOCK_BYTES, bytes(BLOCK_BYTES)
    assert await all_of(device) == zeroes + x + zeroes + x + 4 * zeroes
    assert await device.extents(0, length_bytes=device.size_bytes) == [hole(1), data(1), hole(1), data(1), hole(4)]
    assert await device.extents(2 * BLOCK_BYTES, length_bytes=2 * BLOCK_BYTES) == [hole(1), data(1)]


@pytest.mark.parametrize(("may_trim", "kind"), [(True, hole(BLOCKS)), (False, data(BLOCKS))])
async def test_zeroes_are_allocated_unless_they_may_be_trimmed(may_trim: bool, kind: BlockExtent) -> None:  # noqa: FBT001
    device = MemoryDevice(BLOCKS * BLOCK_BYTES)
    await device.write(0, data=memoryview(b"x" * device.size_bytes), fua=False)
    await device.write_zeroes(0, length_bytes=device.size_bytes, fua=False, may_trim=may_trim)
    assert await all_of(device) == bytes(device.size_bytes)
    assert await device.extents(0, length_bytes=device.size_bytes) == [kind]


@pytest.mark.parametrize(
    ("offset", "length"), [(0, 100), (100, BLOCK_BYTES), (BLOCKS * BLOCK_BYTES, BLOCK_BYTES), (-BLOCK_BYTES, 4096)]
)
async def test_what_is_no_block_of_it_is_refused(offset: int, length: int) -> None:
    device = MemoryDevice(BLOCKS * BLOCK_BYTES)
    with pytest.raises(DeviceError, match="not blocks of this device") as caught:
        await device.write(offset, data=memoryview(bytes(length)), fua=False)
    assert caught.value.errno_value == errno.EINVAL
