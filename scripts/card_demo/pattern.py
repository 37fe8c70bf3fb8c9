"""The tenants' data, which can be recognised wherever it can be read.

Each 32-bit word is the one before plus `STEP`, modulo 2^32, so that three words show it, at whatever byte they begin.
"""

from __future__ import annotations

import mmap
from typing import Final

import numpy as np
import numpy.typing as npt

STEP: Final = 2654435761
"""Odd, so that no two of 2^32 words in a row are equal; no text or header has such words."""
WINDOW_BYTES: Final = 12
_BLOCK_BYTES: Final = 8 << 20
Words = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]


def pattern(first: int, count: int) -> Words:
    """Return `count` words of the pattern, from word `first` on."""
    return (np.arange(first, first + count, dtype=np.uint64) * np.uint64(STEP)).astype(np.uint32)


def windows_of_pattern(data: bytes | mmap.mmap) -> int:
    """Return at how many places 12 bytes of the pattern begin."""
    found = 0
    for at in range(0, len(data), _BLOCK_BYTES):
        block = memoryview(data[at : at + _BLOCK_BYTES + WINDOW_BYTES - 1])
        for shift in range(4):
            words = np.frombuffer(block[shift : len(block) - (len(block) - shift) % 4], "<u4")
            steps = words[1:] - words[:-1] == np.uint32(STEP)
            found += int(np.count_nonzero(steps[1:] & steps[:-1]))
    return found
