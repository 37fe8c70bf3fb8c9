"""Requests of any offset and length, on a device of blocks: beside a bytearray, many at a time."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.errors import DeviceError
from nitro_emu.ebs.front import Answer, Front
from nitro_emu.ebs.limits import Limits, Provisioned
from nitro_emu.ebs.request import BlockOperation, RequestState, VolumeRequest
from tests.nitro_emu.ebs.model import CheckedDevice, disk_full

BLOCKS = 6
SIZE = BLOCKS * BLOCK_BYTES

changes = st.tuples(
    st.sampled_from(
        [
            BlockOperation.WRITE,
            BlockOperation.TRIM,
            BlockOperation.WRITE_ZEROES,
            BlockOperation.READ,
            BlockOperation.EXTENTS,
        ]
    ),
    st.integers(0, SIZE - 1),
    st.integers(0, 3 * BLOCK_BYTES),
    st.integers(1, 255),
    st.booleans(),
)


def front_of(device: CheckedDevice) -> Front:
    return Front(device, limits=Limits(Provisioned()))


async def write(front: Front, offset: int, data: bytes, *, fua: bool = False) -> Answer:
    request = VolumeRequest(command=BlockOperation.WRITE, offset=offset, length_bytes=len(data), fua=fua)
    return await front.carry_out(request, data=memoryview(data))


async def read(front: Front, offset: int, length_bytes: int) -> bytes:
    answer = await front.carry_out(VolumeRequest(command=BlockOperation.READ, offset=offset, length_bytes=length_bytes))
    assert isinstance(answer, memoryview)
    return bytes(answer)


@given(st.lists(changes, max_size=12))
async def test_one_after_the_other_it_is_a_bytearray(
    steps: list[tuple[BlockOperation, int, int, int, bool]],
) -> None:
    device = CheckedDevice(SIZE)
    front, model = front_of(device), bytearray(SIZE)
    for command, offset, wanted, fill, flag in steps:
        length = min(wanted, SIZE - offset)
        end = offset + length
        request = VolumeRequest(command=command, offset=offset, length_bytes=length, fua=flag, may_trim=flag)
        answer = await front.carry_out(request, data=memoryview(bytes([fill]) * length))
        if command is BlockOperation.WRITE:
            model[offset:end] = bytes([fill]) * length
        elif command is BlockOperation.WRITE_ZEROES:
            model[offset:end] = bytes(length)
        elif command is BlockOperation.TRIM:
            begin, until = -(-offset // BLOCK_BYTES) * BLOCK_BYTES, end // BLOCK_BYTES * BLOCK_BYTES
            model[begin:until] = bytes(max(until - begin, 0))
        elif command is BlockOperation.READ:
            assert isinstance(answer, memoryview)
            assert answer == model[offset:end]
        else:
            assert isinstance(answer, list)
            assert sum(extent.length_bytes for extent in answer) == length
            at = offset
            for extent in answer:
                assert not extent.zero or not any(model[at : at + extent.length_bytes])
                at += extent.length_bytes
        assert await read(front, 0, SIZE) == model


@given(st.lists(st.tuples(st.integers(0, SIZE - 1), st.integers(1, 2 * BLOCK_BYTES)), min_size=2, max_size=12))
async def test_writes_at_the_same_time_end_as_if_in_the_order_of_arrival(ranges: list[tuple[int, int]]) -> None:
    device = CheckedDevice(SIZE)  # which fails if two writes of one block are under way
    front, model = front_of(device), bytearray(SIZE)
    writes = []
    for fill, (offset, wanted) in enumerate(ranges, 1):
        data = bytes([fill]) * min(wanted, SIZE - offset)
        model[offset : offset + len(data)] = data
        writes.append(write(front, offset, data))
    await asyncio.gather(*writes)
    assert await read(front, 0, SIZE) == model


async def test_a_write_of_other_blocks_does_not_wait() -> None:
    device = CheckedDevice(SIZE)
    front = front_of(device)
    device.gate.clear()
    first = asyncio.ensure_future(write(front, 0, b"a" * 100))
    second = asyncio.ensure_future(write(front, 50, b"b" * 100))
    third = asyncio.ensure_future(write(front, 2 * BLOCK_BYTES, b"c" * 100))
    for _ in range(20):
        await asyncio.sleep(0)
    assert [call[1] for call in device.calls if call[0] == "write"] == [0, 2 * BLOCK_BYTES]
    assert front.statistics.queue_length == 3
    device.gate.set()
    await asyncio.gather(first, second, third)
    assert await read(front, 0, 150) == b"a" * 50 + b"b" * 100
    assert front.statistics.queue_length == 0


async def test_a_write_that_is_cancelled_gives_its_turn_to_the_next() -> None:
    device = CheckedDevice(SIZE)
    front = front_of(device)
    device.gate.clear()
    first = asyncio.ensure_future(write(front, 0, b"a"))
    second = asyncio.ensure_future(write(front, 0, b"b"))
    third = asyncio.ensure_future(write(front, 0, b"c"))
    for _ in range(20):
        await asyncio.sleep(0)
    second.cancel()
    device.gate.set()
    await asyncio.gather(first, third)
    assert second.cancelled()
    assert await read(front, 0, 1) == b"c"


async def test_fua_reaches_the_device_and_a_trim_with_it_is_flushed() -> None:
    device = CheckedDevice(SIZE)
    front = front_of(device)
    await write(front, 10, b"x", fua=True)
    assert device.calls[-1] == ("write fua", 0, BLOCK_BYTES)
    await front.carry_out(VolumeRequest(command=BlockOperation.TRIM, offset=0, length_bytes=SIZE, fua=True))
    assert device.flushes == 1
    await front.carry_out(VolumeRequest(command=BlockOperation.FLUSH))
    assert device.flushes == 2


async def test_what_fails_is_counted_and_the_next_request_goes_on() -> None:
    device = CheckedDevice(SIZE)
    front = front_of(device)
    device.error = disk_full()
    request = VolumeRequest(command=BlockOperation.WRITE, offset=0, length_bytes=4)
    with pytest.raises(DeviceError, match="disks are full"):
        await front.carry_out(request, data=memoryview(b"lost"))
    assert request.state is RequestState.FAILED
    device.error = None
    await write(front, 0, b"kept")
    done = front.statistics.by_command[BlockOperation.WRITE]
    assert (done.operations, done.errors, done.bytes, done.latency.count) == (1, 1, 4, 1)
    assert front.statistics.queue_length == 0
