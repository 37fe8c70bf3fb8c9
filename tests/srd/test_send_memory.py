"""srd.send_memory: what is sent in place, what is copied, what is refused."""

from __future__ import annotations

import array
import ctypes
from typing import Any

import numpy as np
import pytest

from devmem.errors import RegionError
from devmem.region import Region
from srd.errors import UsageError
from srd.send_memory import send_memory


def bytes_at(data: Any) -> tuple[bytes, int]:
    """What would be sent, and how much of it was copied."""
    memory = send_memory(data)
    assert memory.length == memory.view.nbytes
    assert ctypes.string_at(memory.address, memory.length) == bytes(memory.view)
    return bytes(memory.view), memory.copied_bytes


@pytest.mark.parametrize(
    "data",
    [
        bytearray(b"abcd"),
        memoryview(b"_abcd_")[1:5],
        np.frombuffer(b"abcd", np.uint8),
        np.frombuffer(b"abcd", np.float32),
        np.frombuffer(b"abcd", np.uint8).reshape(2, 2),
        np.frombuffer(b"abcd", np.dtype([("a", "u1"), ("b", "u1")])),
        array.array("b", b"abcd"),
    ],
    ids=lambda data: type(data).__name__,
)
def test_send_memory__anything_else_is_copied(data: Any) -> None:
    assert bytes_at(data) == (b"abcd", 4)


@pytest.mark.parametrize("size_bytes", [1, 7, 64, 4096, 100_000])
def test_send_memory__bytes_lie_where_they_are(size_bytes: int) -> None:
    data = (bytes(range(256)) * (size_bytes // 256 + 1))[:size_bytes]
    assert bytes_at(data) == (data, 0)
    assert send_memory(data).address == np.frombuffer(data, np.uint8).ctypes.data
    assert bytes_at(memoryview(data)) == (data, size_bytes)


def test_send_memory__a_copy_does_not_follow_its_buffer() -> None:
    data = bytearray(b"abcd")
    memory = send_memory(data)
    data[:] = b"----"
    data.clear()  # it is not exported either
    assert bytes(memory.view) == b"abcd"


def test_send_memory__a_part_of_a_region_lies_where_it_is() -> None:
    with Region(4096) as region:
        region[10:14] = b"abcd"
        for part in (
            region.view(10, length=4),
            memoryview(region)[8:20][2:6],
            region.array[10:14],
            region.array[8:20][2:6].reshape(2, 2),
            np.frombuffer(region.view(10, length=4), np.uint16),
        ):
            memory = send_memory(part)
            assert (memory.address, memory.length, memory.copied_bytes) == (region.address + 10, 4, 0)
            del part
            with pytest.raises(RegionError, match="live views"):
                region.close()
            memory.view.release()
            del memory
        assert send_memory(region).length == region.size_bytes


@pytest.mark.parametrize("data", [b"", bytearray(), memoryview(b""), np.zeros((0, 3))])
def test_send_memory__nothing(data: Any) -> None:
    assert bytes_at(data) == (b"", 0)


@pytest.mark.parametrize("data", ["text", 5, None, [1, 2], np.zeros((4, 4))[:, ::2], memoryview(b"abcd")[::2]])
def test_send_memory__no_contiguous_buffer_bad_flow(data: Any) -> None:
    with pytest.raises(UsageError, match=f"^data: {type(data).__name__} cannot be sent"):
        send_memory(data)
