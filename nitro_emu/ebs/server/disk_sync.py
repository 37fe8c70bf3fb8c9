"""When a file is synchronised in another thread, and when at once.

Another thread costs two changes of threads, some 100 us; a disk whose cache outlives a loss of power, or one in memory,
has done an `fdatasync` by then. So a file that was quick QUICK_TIMES in a row is synchronised at once, until it is
slow: the server waits for that one. What a file has to synchronise differs, and so each is counted for itself: a log
has some blocks, a checkpoint many.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from nitro_emu.ebs.server.disk import DiskFile

QUICK_S: Final = 0.0001
"""What it takes to have another thread do it, and to be told."""
QUICK_TIMES: Final = 64
"""A disk that is slow once in so many times delays its server by less than 2 % of them."""


class DiskSync:
    """Synchronises the files of one store, one after the other; see `nitro_emu.ebs.server.replica.Sync`."""

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock`: seconds."""
        self._clock = clock
        self._quick = defaultdict[DiskFile, int](int)  # times in a row, by file

    async def __call__(self, files: Sequence[DiskFile]) -> None:
        """Return once what was written lies on the disk. Raises OSError."""
        for file in files:
            if self._quick[file] >= QUICK_TIMES:
                self._sync(file)
            else:
                await asyncio.get_running_loop().run_in_executor(None, self._sync, file)

    def _sync(self, file: DiskFile) -> None:
        began_at = self._clock()
        file.sync()
        self._quick[file] = self._quick[file] + 1 if self._clock() - began_at < QUICK_S else 0
