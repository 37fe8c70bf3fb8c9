"""A region: the memory that payload lies in. A memfd, so that another process can map the same bytes."""

from __future__ import annotations

import mmap
import os
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from devmem.errors import RegionError


class Region:
    """`size_bytes` of zeroed, page-aligned, shared memory. A context manager.

    `array` is all of it as bytes; `address` is where it lies in this process, for the kernel's iovecs; `fd` is what
    another process maps. Raises RegionError when the memory cannot be had, and on `close` while views are alive.
    """

    def __init__(self, size_bytes: int, *, name: str = "srd-region") -> None:
        if size_bytes <= 0:
            raise RegionError(f"size: {size_bytes} bytes is no region; give at least one page ({mmap.PAGESIZE})")
        self.size_bytes = -(-size_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self.fd = os.memfd_create(name, os.MFD_CLOEXEC)
        try:
            os.ftruncate(self.fd, self.size_bytes)
            self._map = mmap.mmap(self.fd, self.size_bytes)
        except (OSError, OverflowError, ValueError) as error:
            os.close(self.fd)
            raise RegionError(f"size: {self.size_bytes} bytes cannot be mapped: {error}") from error
        self.array: npt.NDArray[np.uint8] = np.frombuffer(self._map, np.uint8)
        self.address: int = self.array.ctypes.data

    def view(self, offset: int, *, length: int) -> memoryview:
        """Return `length` bytes from `offset`, writable, without a copy. Raises RegionError when out of bounds."""
        if offset < 0 or length < 0 or offset + length > self.size_bytes:
            raise RegionError(f"bytes {offset} to {offset + length} are not within a region of {self.size_bytes}")
        return memoryview(self._map)[offset : offset + length]

    def close(self) -> None:
        """Unmap. Raises RegionError while a view of the memory is alive: it would be left dangling."""
        array, self.array = self.array, np.empty(0, np.uint8)
        del array
        try:
            self._map.close()
        except BufferError as error:
            self.array = np.frombuffer(self._map, np.uint8)
            raise RegionError("the region has live views; release them first") from error
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
