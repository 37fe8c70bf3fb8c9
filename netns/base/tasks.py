"""Tasks in the background: asyncio keeps no reference to a task of its own, so that one may vanish before its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
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
