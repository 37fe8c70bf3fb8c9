"""Bytes of which each eight are unique, so that misplaced ones show."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]


def pattern(number: int, *, length: int) -> Bytes:
    """Contents of message `number`; no eight bytes of it occur elsewhere in it, or in another of a test."""
    first = np.uint64(number << 32)
    lanes = (first + np.arange(1, length // 8 + 2, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    return lanes.view(np.uint8)[:length]
