"""Small messages that say which they are: rows of random bytes that begin with their number, as both ends make them."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

SEED: Final = 2
TURN_BYTES: Final = 64 << 20
MESSAGES: Final = 1 << 16
"""Messages of a turn; fewer, if they would exceed TURN_BYTES."""


def content(message_bytes: int) -> npt.NDArray[np.uint8]:
    """Return a turn's messages, one per row; the first four bytes are the row's number."""
    count = min(MESSAGES, TURN_BYTES // message_bytes)
    rows = np.frombuffer(np.random.default_rng(SEED).bytes(count * message_bytes), np.uint8).reshape(count, -1).copy()
    rows[:, :4] = np.arange(count, dtype="<u4").view(np.uint8).reshape(count, 4)
    return rows
