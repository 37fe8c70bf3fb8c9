"""Descriptors by which the card wakes a program: 8 bytes an event, a number of events as from an eventfd."""

from __future__ import annotations

import os
import struct
from typing import Final

_NUMBER: Final = struct.Struct("<Q")
_MOST_BYTES: Final = 64 * _NUMBER.size


def take_events(fd: int) -> int | None:
    """Return how many events there were since the last call; None: the card's end is closed. Raises BlockingIOError."""
    data = os.read(fd, _MOST_BYTES)
    return sum(number for (number,) in _NUMBER.iter_unpack(data)) if data else None
