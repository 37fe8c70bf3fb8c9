"""What one client has sent, taken in parts of a known length. No I/O: a transport receives into `space`."""

from __future__ import annotations

from typing import Final

BUFFER_BYTES: Final = 64 << 10
"""Requests that come together are received together; a write of up to 64 KiB, with its header."""


class Intake:
    """A buffer; a part that it has no room for is received where it is to lie."""

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._begin = self._end = 0
        self._large: bytearray | None = None
        self._large_end = 0

    def space(self) -> memoryview:
        """Return where the next bytes are received."""
        if self._large is not None:
            return memoryview(self._large)[self._large_end :]
        return self._buffer[self._end :]

    def received(self, length: int) -> None:
        """Note that so many bytes are in `space`."""
        if self._large is not None:
            self._large_end += length
        else:
            self._end += length

    def take(self, length: int) -> bytes | bytearray | None:
        """Return the next part, for its owner to keep; None: not all of it is there."""
        if self._large is not None:
            if self._large_end < len(self._large):
                return None
            part, self._large = self._large, None
            return part
        if self._end - self._begin >= length:
            self._begin += length
            return bytes(self._buffer[self._begin - length : self._begin])
        self._make_room(length)
        return None

    def _make_room(self, length: int) -> None:
        """Have the rest of a part find room behind its beginning."""
        begun = self._buffer[self._begin : self._end]
        if length > BUFFER_BYTES:
            self._large, self._large_end = bytearray(length), len(begun)
            self._large[: len(begun)] = begun
            self._begin = self._end = 0
        elif self._begin + length > BUFFER_BYTES or not begun:
            self._buffer[: len(begun)] = begun
            self._begin, self._end = 0, len(begun)

    def drop(self) -> None:
        """Forget all."""
        self._begin = self._end = 0
        self._large = None
