"""A block device, as the front serves it and the servers keep it.

A read of what was never written, or was trimmed, returns zeroes. A write is seen by every read that begins after it
has returned; it outlives a failure once `flush` has returned that began after it, or at once with `fua`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

BLOCK_BYTES: Final = 4096
"""What is written whole or not at all, and has one checksum; a page of the host, as NVMe devices of AWS have it."""


@dataclass(frozen=True, slots=True)
class BlockExtent:
    """A run of bytes that are alike. A `hole` is not allocated; `zero` reads as zeroes."""

    length_bytes: int
    hole: bool
    zero: bool


class BlockDevice(Protocol):
    """What the front serves: bytes by offset, in multiples of BLOCK_BYTES; the front rounds.

    What fails raises DeviceError.
    """

    size_bytes: int

    async def read(self, offset: int, *, into: memoryview) -> None:
        """Read as many bytes as `into` has."""

    async def write(self, offset: int, *, data: memoryview, fua: bool) -> None:
        """Write; with `fua` they outlive a failure when this returns."""

    async def flush(self) -> None:
        """Have all writes that have returned outlive a failure."""

    async def trim(self, offset: int, *, length_bytes: int) -> None:
        """Give up the bytes, which read as zeroes from then on."""

    async def write_zeroes(self, offset: int, *, length_bytes: int, fua: bool, may_trim: bool) -> None:
        """Write zeroes; with `may_trim` the space may be given up."""

    async def extents(self, offset: int, *, length_bytes: int) -> list[BlockExtent]:
        """Return what the bytes are, from the first one on: at least one extent, together at most `length_bytes`."""
