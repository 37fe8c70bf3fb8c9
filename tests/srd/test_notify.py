"""srd.notify: all waiting tasks are woken, once, and cancelled ones are removed."""

from __future__ import annotations

import asyncio

import pytest

from srd.notify import Notify


async def test_wake__all_that_wait() -> None:
    waiting = Notify()
    waiting.notify()  # no task waits: nothing is kept
    tasks = [asyncio.ensure_future(waiting.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)
    waiting.notify()
    await asyncio.gather(*tasks)
    assert waiting._waiters == ()


async def test_wait__cancelled() -> None:
    waiting = Notify()
    one, other = (asyncio.ensure_future(waiting.wait()) for _ in range(2))
    await asyncio.sleep(0)
    one.cancel()
    with pytest.raises(asyncio.CancelledError):
        await one
    waiting.notify()
    await other
