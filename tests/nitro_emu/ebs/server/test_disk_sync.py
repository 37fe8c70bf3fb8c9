"""Where files are synchronised: in another thread unless they have been quick for long."""

from __future__ import annotations

import asyncio
import errno
import threading

import pytest

from nitro_emu.ebs.server.disk import OsFile
from nitro_emu.ebs.server.disk_sync import QUICK_S, QUICK_TIMES, DiskSync


class TimedFile(OsFile):
    """A file whose synchronisation takes `takes_s` of the test's clock; it notes in which thread that was."""

    takes_s = QUICK_S / 2
    now = 0.0

    def sync(self) -> None:
        TimedFile.now += self.takes_s
        self.thread = threading.current_thread()
        super().sync()

    @property
    def was_at_once(self) -> bool:
        return self.thread is threading.main_thread()


@pytest.fixture
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[TimedFile, TimedFile]:
    directory = tmp_path_factory.mktemp("disk")
    return TimedFile(directory / "log", size_bytes=0), TimedFile(directory / "data", size_bytes=0)


async def times(sync: DiskSync, file: TimedFile, count: int) -> list[bool]:
    """Synchronise a file again and again; return which times were at once."""
    found = []
    for _ in range(count):
        await sync([file])
        found.append(file.was_at_once)
    return found


def test_a_file_that_is_quick_for_long_is_synchronised_at_once_until_it_is_slow(
    files: tuple[TimedFile, TimedFile],
) -> None:
    log, data = files
    sync = DiskSync(clock=lambda: TimedFile.now)

    async def main() -> None:
        assert await times(sync, log, QUICK_TIMES + 3) == [False] * QUICK_TIMES + [True] * 3
        await sync([data, log])
        assert (data.was_at_once, log.was_at_once) == (False, True)  # each is counted for itself
        log.takes_s = QUICK_S * 2
        assert await times(sync, log, 2) == [True, False]
        log.takes_s = QUICK_S / 2
        assert await times(sync, log, QUICK_TIMES + 1) == [False] * QUICK_TIMES + [True]

    asyncio.run(main())


def test_an_error_is_raised_wherever_it_happens(files: tuple[TimedFile, TimedFile]) -> None:
    log, _ = files
    sync = DiskSync(clock=lambda: TimedFile.now)

    async def main() -> None:
        await times(sync, log, QUICK_TIMES)
        log.close()
        with pytest.raises(OSError, match="Bad file descriptor") as raised:
            await sync([log])
        assert (raised.value.errno, log.was_at_once) == (errno.EBADF, True)

    asyncio.run(main())
