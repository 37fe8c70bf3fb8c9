"""Runs of equal send requests in what was copied from a send queue: what can be posted to the transport as one batch.

Neighbours belong to one run if they are SENDs that differ only in request id, address of the (single) buffer, or inline
data. Entries are compared as rows of 64-bit words.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nitro_emu.efa.abi.io import INLINE_MSG, META_BYTES, OP_MASK

Words = npt.NDArray[np.uint64]
FEW: Final = 4
"""Fewer entries than this are processed one by one."""
_MASK: Final = np.array([0xFFFF_FFFF_FFFF_0000, 0xFFFF_FFFF_FFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF, 0xFFFF], np.uint64)
"""Of the first four words: everything but request id and extended request id."""
_SGE_WORD, _ADDRESS_WORD = 4, 5


class WqeRun(NamedTuple):
    """Consecutive entries, from `first` on."""

    first: int
    length: int
    req_ids: Words
    addresses: Words
    """Of the buffers; with inline data where the data lies in the copy, from its beginning."""
    is_inline: bool


def runs(raw: bytes, *, wqe_bytes: int) -> Iterator[WqeRun]:
    """Yield the runs of the entries in `raw`. Only the first entry of a run has to be examined."""
    count = len(raw) // wqe_bytes
    rows = np.frombuffer(raw, np.uint64).reshape(count, wqe_bytes // 8)
    heads = rows[:, :4] & _MASK
    controls = (rows[:, 0] >> np.uint64(16)) & np.uint64(0xFF)
    inline = (controls & np.uint64(INLINE_MSG)) != 0
    differs = (heads[1:] != heads[:-1]).any(axis=1) | ((controls[1:] & np.uint64(OP_MASK)) != 0)
    differs |= ~inline[1:] & (rows[1:, _SGE_WORD] != rows[:-1, _SGE_WORD])
    differs |= ~inline[1:] & ((rows[1:, 0] >> np.uint64(48)) != 1)  # of two buffers, the second could differ
    starts = [0, *(np.flatnonzero(differs) + 1).tolist(), count]
    offsets = np.arange(count, dtype=np.uint64) * np.uint64(wqe_bytes) + np.uint64(META_BYTES)
    for first, end in pairwise(starts):
        addresses = offsets[first:end] if inline[first] else rows[first:end, _ADDRESS_WORD]
        req_ids = rows[first:end, 0] & np.uint64(0xFFFF)
        yield WqeRun(first, end - first, req_ids, addresses, bool(inline[first]))
