"""Payload that shows which bytes of it are wrong: byte j of a message is (start + j) modulo 251.

251 is prime, so bytes that are off by any part of a packet or page differ.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nitro_emu.perf.plan import MAX_BYTES, PerfError

PERIOD: Final = 251
_ALL: Final[npt.NDArray[np.uint8]] = np.resize(np.arange(PERIOD, dtype=np.uint8), MAX_BYTES + PERIOD)

Payload = npt.NDArray[np.uint8]


def fill(payload: Payload, *, start: int) -> None:
    """Write the pattern."""
    start %= PERIOD
    payload[:] = _ALL[start : start + len(payload)]


def check(payload: Payload, *, start: int | None = None) -> None:
    """Compare with the pattern; without a start, with that which the first byte gives. Raises PerfError."""
    start = int(payload[0]) if start is None else start % PERIOD
    if start >= PERIOD:
        raise PerfError(f"payload is wrong: byte 0 is {start}, which no message has")
    expected = _ALL[start : start + len(payload)]
    if not np.array_equal(payload, expected):
        wrong: Any = int((payload != expected).argmax())
        raise PerfError(
            f"payload is wrong: byte {wrong} of {len(payload)} is {int(payload[wrong])} instead of {expected[wrong]}"
        )
