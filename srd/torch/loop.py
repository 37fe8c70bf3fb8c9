"""The one event loop of this process's groups, on a thread of its own: training holds the main thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from netns.base.event_loop import FACTORY

Result = TypeVar("Result")


class LoopThread:
    """An event loop that runs until the process ends."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = (FACTORY or asyncio.new_event_loop)()
        threading.Thread(target=self.loop.run_forever, name="srd-torch", daemon=True).start()

    def submit(self, coroutine: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Start a coroutine on the loop, from another thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)


_lock = threading.Lock()
_thread: LoopThread | None = None


def loop_thread() -> LoopThread:
    """Return this process's loop, started at the first use."""
    global _thread  # noqa: PLW0603 - one for each process, whose groups share it
    with _lock:
        if _thread is None:
            _thread = LoopThread()
        return _thread
