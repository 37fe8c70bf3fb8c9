"""Tasks in the background."""

from __future__ import annotations

import asyncio
import gc

from netns.base.tasks import Tasks
from tests.patience import PATIENCE_S


async def test_start__keeps_a_task_that_nobody_else_refers_to_until_its_end() -> None:
    tasks, done = Tasks(), asyncio.Event()

    async def wait() -> None:
        await future
        done.set()

    future = asyncio.get_running_loop().create_future()
    tasks.start(wait())
    await asyncio.sleep(0)
    gc.collect()
    assert len(tasks) == 1
    future.set_result(None)
    async with asyncio.timeout(PATIENCE_S):
        await done.wait()
    await asyncio.sleep(0)
    assert len(tasks) == 0


async def test_on_error__gets_what_a_task_raises_and_no_cancellation() -> None:
    errors: asyncio.Queue[BaseException] = asyncio.Queue()
    tasks = Tasks(errors.put_nowait)

    async def fail() -> None:
        raise ValueError("wrong")

    async def wait() -> None:
        await asyncio.Event().wait()

    tasks.start(wait())
    tasks.start(fail())
    async with asyncio.timeout(PATIENCE_S):
        assert str(await errors.get()) == "wrong"
    await tasks.end()
    assert errors.empty()


async def test_end__waits_until_all_have_ended() -> None:
    tasks, ended = Tasks(), list[int]()

    async def work(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(number)

    for number in range(3):
        tasks.start(work(number))
    await asyncio.sleep(0)
    await tasks.end()
    assert sorted(ended) == [0, 1, 2]
    assert len(tasks) == 0
