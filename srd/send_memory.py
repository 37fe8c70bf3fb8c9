"""The memory that a message is sent from: a part of a region where it lies, or a copy of anything else.

The kernel gathers a message's packets from memory, until they are acknowledged. A region is shared memory that its
owner knows not to change meanwhile, and `bytes` never change. Any other buffer may be reused by its owner at once, so
it is copied, once.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from devmem.region import Region
from srd.errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import Buffer

Sendable: TypeAlias = "Buffer | npt.NDArray[Any]"
"""What can be sent: anything with the buffer protocol, which NumPy declares from Python 3.12 on only."""


_BYTES_AT: Final = bytes.__basicsize__ - 1
"""Where CPython has the content of `bytes`, from the object's address: behind its header, before a zero at the end."""


class SendMemory:
    """Where a message lies until its request ends: `length` bytes at `address`, of which `copied_bytes` are a copy.

    `view` keeps the memory, and its region open; to be released when the request has ended.
    """

    def __init__(self, address: int, length: int, view: memoryview, copied_bytes: int) -> None:
        self.address = address
        self.length = length
        self.view = view
        self.copied_bytes = copied_bytes


def is_in_region(buffer: Any) -> bool:
    """Whether a buffer's memory is a region's: the region, a view of it, or an array over one of these."""
    owner = buffer
    while owner is not None and not isinstance(owner, Region):
        if isinstance(owner, memoryview):
            owner = owner.obj
        elif isinstance(owner, np.ndarray):
            owner = owner.base
        else:
            return False
    return owner is not None


def send_memory(data: Sendable) -> SendMemory:
    """Return the memory to send a buffer from. Raises UsageError for what is no buffer, or not contiguous."""
    if type(data) is bytes:
        return in_place(data)
    try:
        given = memoryview(cast("Buffer", data))
        if is_in_region(data):
            return _memory(np.frombuffer(given, np.uint8), copied_bytes=0)
    except (TypeError, ValueError, BufferError) as error:
        raise UsageError(f"data: {type(data).__name__} cannot be sent ({error}); give contiguous bytes") from error
    if not given.c_contiguous:
        raise UsageError(f"data: {type(data).__name__} cannot be sent (it has gaps); give contiguous bytes")
    copy = bytearray(given)
    # An array's address costs five times as much.
    address = ctypes.addressof(ctypes.c_char.from_buffer(copy)) if copy else 0
    return SendMemory(address, len(copy), memoryview(copy), len(copy))


def in_place(data: bytes | memoryview) -> SendMemory:
    """Return the memory of bytes that never change."""
    if type(data) is bytes:
        return SendMemory(id(data) + _BYTES_AT, len(data), memoryview(data), 0)
    return _memory(np.frombuffer(data, np.uint8), copied_bytes=0)


def _memory(lies: npt.NDArray[np.uint8], *, copied_bytes: int) -> SendMemory:
    return SendMemory(int(lies.__array_interface__["data"][0]), lies.nbytes, lies.data, copied_bytes)
