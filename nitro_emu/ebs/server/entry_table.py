"""The entries of all blocks of a volume: a file, and in memory, decoded, those of the extents that were used last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from nitro_emu.ebs.server.disk import DiskFile
from nitro_emu.ebs.server.entries import ENTRY_BYTES, EXTENT_BLOCKS, Entries

MOST_EXTENTS: Final = 1024
"""In memory: the entries of 4 GiB, 16 MiB."""


class EntryTable:
    """The only one who reads and writes its file."""

    def __init__(self, file: DiskFile) -> None:
        self.file = file
        self._known = dict[int, Entries]()  # by extent; what was used last is the last one

    def get(self, first_block: int, *, count: int) -> Entries:
        """Return a copy of the entries of blocks. Raises OSError."""
        parts = [
            self._extent(extent).part(begin, end) for extent, begin, end, _ in _parts(first_block, first_block + count)
        ]
        return Entries(
            np.concatenate([part.version for part in parts]),
            np.concatenate([part.crc for part in parts]),
            np.concatenate([part.kind for part in parts]),
        )

    def put(self, first_block: int, entries: Entries) -> None:
        """Replace the entries of blocks. Raises OSError."""
        self.file.write([entries.encode(first_block=first_block)], offset=first_block * ENTRY_BYTES)
        for extent, begin, end, at in _parts(first_block, first_block + len(entries.version)):
            if (known := self._known.get(extent)) is not None:
                known.replace(begin, entries.part(at, at + end - begin))

    def forget(self) -> None:
        """Read from the file again what is asked for next."""
        self._known.clear()

    def _extent(self, extent: int) -> Entries:
        if (known := self._known.pop(extent, None)) is None:
            raw = bytearray(EXTENT_BLOCKS * ENTRY_BYTES)
            self.file.read(memoryview(raw), offset=extent * len(raw))
            known = Entries.decode_untrusted(raw, first_block=extent * EXTENT_BLOCKS)
            if len(self._known) >= MOST_EXTENTS:
                del self._known[next(iter(self._known))]
        self._known[extent] = known
        return known


def _parts(first: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the extents of blocks: which, the first block in it and the end, and where these are among the blocks."""
    block = first
    while block < end:
        extent, begin = divmod(block, EXTENT_BLOCKS)
        count = min(EXTENT_BLOCKS - begin, end - block)
        yield extent, begin, begin + count, block - first
        block += count
