"""Tasks in the background: asyncio keeps no reference to a task of its own, so that one may vanish before its end.

`begin` makes none for what does not wait: `eager_start` of Python 3.12, which this project does not need yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
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

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` at once, up to where it waits, and the rest as a task. What it raises before is raised here.

        Before it waits it is in no task of its own: `asyncio.timeout` is not for it.
        """
        try:
            waits_for = work.send(None)
        except StopIteration:
            return
        self.start(_rest(work, waits_for))

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


async def _rest(work: Coroutine[Any, Any, None], waits_for: object) -> None:
    """Go on with work that waits."""
    await _Begun(work, waits_for)


class _Begun:
    """An awaitable: work that waits, as a task has it from its first step on."""

    __slots__ = ("_waits_for", "_work")

    def __init__(self, work: Coroutine[Any, Any, None], waits_for: object) -> None:
        self._work = work
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, None]:
        waits_for = self._waits_for
        try:
            while True:
                try:
                    sent = yield waits_for
                except BaseException as error:  # noqa: BLE001 - the work decides
                    waits_for = self._work.throw(error)
                else:
                    waits_for = self._work.send(sent)
        except StopIteration:
            return
