"""What is sent: pseudo-random bytes in a few MiB of memory, from which every block is sent.

It stays in the CPU's cache, as with iperf3's one buffer; a copy from there is faster than from memory. Consecutive
blocks differ, and random bytes occur nowhere else, so that a byte in a wrong place is a wrong byte: a block's number
says where in the memory it lies. Both ends make the same bytes.
"""

from __future__ import annotations

from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from devmem.region import Region
from srd.perf.errors import PerfError

SOURCE_BYTES: Final = 4 << 20
"""Fits into the cache of a core of a server."""
SEED: Final = 1
PIECE_BYTES: Final = 64 << 10
SHIFTS: Final = 16
SHIFT_BYTES: Final = 64
"""A cache line."""
NUMBERS: Final = 1 << 32
"""Blocks are numbered modulo this: a message's immediate."""

Number = TypeVar("Number", int, npt.NDArray[np.int64])


class PayloadSource:
    """The memory of one end."""

    def __init__(self, block_bytes: int) -> None:
        self._fill(max(SOURCE_BYTES, 2 * block_bytes), block_bytes=block_bytes)
        self._blocks, self._step_bytes = self.size_bytes // block_bytes, block_bytes
        self.period_bytes = self._blocks * block_bytes
        """After so many bytes of consecutive blocks they repeat."""

    def _fill(self, size_bytes: int, *, block_bytes: int) -> None:
        self._block_bytes, self.size_bytes = block_bytes, size_bytes
        self.region = Region(self.size_bytes, name="srd-perf")
        self.array: npt.NDArray[np.uint8] = self.region.array[: self.size_bytes]  # a region has whole pages
        self.array[:] = np.frombuffer(np.random.default_rng(SEED).bytes(self.size_bytes), np.uint8)

    def offset(self, number: Number) -> Number:
        """Return where in the region a block lies, or blocks."""
        return number % NUMBERS % self._blocks * self._step_bytes

    def is_block(self, number: int, arrived: bytes) -> bool:
        """Whether it is the beginning of a block. Compares in pieces, so that a copy of all does not fill the cache."""
        block = self.block(number)[: len(arrived)]
        pieces = range(0, len(arrived), PIECE_BYTES)
        return all(arrived[at : at + PIECE_BYTES] == block[at : at + PIECE_BYTES].tobytes() for at in pieces)

    def block(self, number: int) -> npt.NDArray[np.uint8]:
        """Return a block."""
        offset = self.offset(number)
        return self.array[offset : offset + self._block_bytes]

    def difference(self, offset: int, arrived: npt.NDArray[np.uint8]) -> int | None:
        """Return the index of the first byte of `arrived` that is not the one from `offset` on; None: all are."""
        expected = self.array[offset : offset + len(arrived)]
        if np.array_equal(expected, arrived):
            return None
        if len(expected) < len(arrived):
            return len(expected)
        return int(np.flatnonzero(expected != arrived)[0])

    def require_stream(self, arrived: npt.NDArray[np.uint8], *, done_bytes: int, period_bytes: int, of: str) -> None:
        """Raise PerfError unless `arrived` is what follows `done_bytes` of a stream that repeats a period."""
        begin, at = 0, done_bytes % period_bytes
        while begin < len(arrived):
            part = arrived[begin : begin + period_bytes - at]
            if (wrong := self.difference(at, part)) is not None:
                raise PerfError(f"{of}: byte {done_bytes + begin + wrong} is not what was sent")
            begin, at = begin + len(part), 0

    def close(self) -> None:
        """Give the memory back."""
        del self.array
        self.region.close()


class Shifted(PayloadSource):
    """Blocks that begin a little further each: for messages one at a time, which take no more cache than one buffer.

    Random bytes are others everywhere when they are shifted, so that what is left of the message before is wrong.
    """

    def __init__(self, block_bytes: int) -> None:
        self._fill(block_bytes + (SHIFTS - 1) * SHIFT_BYTES, block_bytes=block_bytes)
        self._blocks, self._step_bytes = SHIFTS, SHIFT_BYTES
