"""Tasks in the background, and the first of several to end.

asyncio keeps no reference to a task of its own, so that one may vanish before its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any


class Tasks:
    """Tasks that are kept until they have ended."""

    __slots__ = ("_on_error", "_running")

    def __init__(self, on_error: Callable[[BaseException], object] | None = None) -> None:
        """`on_error` is called with an exception of any of them; without it asyncio logs the exception."""
        self._running: set[asyncio.Task[None]] = set()
        self._on_error = on_error

    def __len__(self) -> int:
        return len(self._running)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work`."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._ended)

    async def ended(self) -> None:
        """Wait until none runs, also of those that are started meanwhile."""
        while self._running:
            await asyncio.wait(self._running)

    def cancel(self) -> None:
        """Cancel all that run."""
        for task in self._running:
            task.cancel()

    async def end(self) -> None:
        """Cancel all that run, and wait for their ends."""
        self.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if self._on_error is not None and not task.cancelled() and (error := task.exception()) is not None:
            self._on_error(error)


async def first(*awaitables: Awaitable[Any]) -> Any:
    """Return the result of the one that ends first, or raise its error; cancel the others, and wait until they end."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task for task in tasks if task in done).result()
    finally:
        for task in tasks:
            if task.done():
                if not task.cancelled():
                    task.exception()  # retrieved: only the first one counts
            else:
                task.cancel()
        if left := [task for task in tasks if not task.done()]:
            await asyncio.wait(left)  # what they use may be given back after this


async def first_ended(*works: Coroutine[Any, Any, object]) -> int:
    """Return the index of the one that ends first, as `first` returns its result."""

    async def numbered(number: int, work: Coroutine[Any, Any, object]) -> int:
        await work
        return number

    return int(await first(*(numbered(number, work) for number, work in enumerate(works))))
