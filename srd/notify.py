"""Waiting for a change: an `asyncio.Condition` without a lock, which costs little while no task waits."""

from __future__ import annotations

import asyncio


class Notify:
    """`wait` until the next `notify`; then check the awaited condition again."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: tuple[asyncio.Future[None], ...] = ()  # takes no memory while it is empty

    async def wait(self) -> None:
        """Wait for the next `notify`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters += (future,)
        try:
            await future
        finally:
            if future in self._waiters:  # the wait was cancelled
                self._waiters = tuple([each for each in self._waiters if each is not future])

    def notify(self) -> None:
        """Wake all waiting tasks."""
        if not self._waiters:
            return
        waiters, self._waiters = self._waiters, ()
        for future in waiters:
            if not future.done():
                future.set_result(None)
