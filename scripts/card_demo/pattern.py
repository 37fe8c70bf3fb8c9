"""The tenants' data, which is recognised wherever it can be read: random bytes, which are nowhere else."""

from __future__ import annotations

import mmap
from typing import Final

import numpy as np

from srd.perf.payload import PayloadSource

WORD_BYTES: Final = 8
_BLOCK_BYTES: Final = 8 << 20
_LOW: Final = (1 << 24) - 1


def data() -> bytes:
    """Return what `efa-bw` sends, whatever the size of its messages: all bytes but the number at the start of each."""
    source = PayloadSource(1)
    try:
        return source.array.tobytes()
    finally:
        source.close()


def words_of_data(content: bytes | mmap.mmap) -> int:
    """Return at how many places a word of the data begins, at whatever byte."""
    words, found = np.unique(np.frombuffer(data(), "<u8")), 0
    maybe = np.zeros(_LOW + 1, np.bool_)  # by the low bits of a word: most of what is searched is none by these
    maybe[words & np.uint64(_LOW)] = True
    for at in range(0, len(content), _BLOCK_BYTES):
        block = content[at : at + _BLOCK_BYTES + WORD_BYTES - 1]
        for shift in range(min(WORD_BYTES, len(block))):
            there = np.frombuffer(block, "<u8", (len(block) - shift) // WORD_BYTES, shift)
            likely = there[maybe[there & np.uint64(_LOW)]]
            found += int(np.count_nonzero(words[np.searchsorted(words[:-1], likely)] == likely))
    return found
