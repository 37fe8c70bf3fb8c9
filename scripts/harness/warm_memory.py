"""Memory that has been touched, and stays at hand: for benches that allocate much, such as the page cache of a file.

A virtual machine gives free memory back to its host (free page reporting, in blocks of 2 MiB), and gets it again page
by page at a twentieth of the speed. So how long a write takes depends on how long the memory was free. Here memory is
touched and freed again, except for the first page of each block: the blocks stay divided, the kernel does not give them
back, and it takes the smallest blocks that suffice first, such as these for the 1 MiB of a write.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import numpy as np

_PAGE_BYTES: Final = mmap.PAGESIZE
_BLOCK_PAGES: Final = (2 << 20) // _PAGE_BYTES
_FREED_BYTES: Final = 1 << 20
"""The largest piece of a divided block."""
_STEP_BYTES: Final = 256 << 20
_FRAME: Final = (1 << 55) - 1
"""The page frame number in an entry of pagemap (admin-guide/mm/pagemap.rst): zero without CAP_SYS_ADMIN."""


@contextmanager
def warm_memory(size_bytes: int) -> Iterator[None]:
    """Have `size_bytes` of free memory, in pieces of 1 MiB, that stay warm during the block. Needs root."""
    with ExitStack() as stack:
        blocks = 0
        areas = list[tuple[mmap.mmap, list[int]]]()
        while blocks * _FREED_BYTES < size_bytes and _free_bytes() > 2 * _STEP_BYTES:
            area = stack.enter_context(mmap.mmap(-1, _STEP_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
            kept = _first_pages(area)
            blocks += len(kept)
            areas.append((area, kept))
        for area, kept in areas:
            for first, end in zip([0, *(page + 1 for page in kept)], [*kept, _STEP_BYTES // _PAGE_BYTES], strict=True):
                if end > first:
                    area.madvise(mmap.MADV_DONTNEED, first * _PAGE_BYTES, (end - first) * _PAGE_BYTES)
        yield


def _first_pages(area: mmap.mmap) -> list[int]:
    """Touch the pages of an area; return which of them are the first ones of a block."""
    area.madvise(mmap.MADV_NOHUGEPAGE)
    pages = np.frombuffer(area, np.uint8)
    address = pages.ctypes.data
    pages[::_PAGE_BYTES] = 1
    with Path("/proc/self/pagemap").open("rb") as pagemap:
        pagemap.seek(address // _PAGE_BYTES * 8)
        frames = np.frombuffer(pagemap.read(len(pages) // _PAGE_BYTES * 8), np.uint64) & np.uint64(_FRAME)
    return [int(page) for page in np.flatnonzero(frames % _BLOCK_PAGES == 0)]


def _free_bytes() -> int:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemFree:"):
            return int(line.split()[1]) << 10
    return 0
