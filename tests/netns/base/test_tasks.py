"""Tasks in the background."""

from __future__ import annotations

import asyncio
import gc

import pytest

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


async def test_what_does_not_wait_has_no_task() -> None:
    tasks, done = Tasks(), list[int]()

    async def at_once() -> None:
        done.append(1)

    async def fails() -> None:
        raise LookupError

    tasks.begin(at_once())
    assert (done, len(tasks)) == ([1], 0)
    with pytest.raises(LookupError):
        tasks.begin(fails())
    assert len(tasks) == 0


async def test_what_waits_goes_on_as_a_task() -> None:
    errors, steps, gate = asyncio.Queue[BaseException](), list[int](), asyncio.Event()
    tasks = Tasks(errors.put_nowait)

    async def work() -> None:
        steps.append(1)
        await gate.wait()
        async with asyncio.timeout(10):
            await asyncio.sleep(0)
        steps.append(2)
        raise LookupError

    async def cancelled() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            steps.append(3)

    tasks.begin(work())
    tasks.begin(cancelled())
    assert (steps, len(tasks)) == ([1], 2)
    gate.set()
    assert isinstance(await errors.get(), LookupError)
    assert steps == [1, 2]
    await tasks.end()
    assert (steps, len(tasks)) == ([1, 2, 3], 0)
