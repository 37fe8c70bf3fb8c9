"""Flows take turns, and no more is posted than the window and a little."""

from __future__ import annotations

import asyncio

from srd.compare.worker.srd_carrier import Turns

BLOCK = 10


async def post(turns: Turns, log: list[str], name: str, *, blocks: int) -> None:
    for _ in range(blocks):
        await turns.take(BLOCK)
        log.append(name)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_turns__as_much_as_the_window_and_a_block() -> None:
    turns, log = Turns(lambda: 3 * BLOCK, block_bytes=BLOCK), list[str]()
    task = asyncio.ensure_future(post(turns, log, "a", blocks=9))
    await settle()
    assert len(log) == 4
    turns.done(BLOCK)
    await settle()
    assert len(log) == 5
    for _ in range(4):
        turns.done(BLOCK)
    await task


async def test_turns__a_short_flow_does_not_wait_for_a_long_one() -> None:
    turns, log = Turns(lambda: 0, block_bytes=BLOCK), list[str]()
    tasks = [asyncio.ensure_future(post(turns, log, "long", blocks=10))]
    await settle()
    tasks.append(asyncio.ensure_future(post(turns, log, "short", blocks=1)))
    await settle()
    for _ in range(3):
        turns.done(BLOCK)
        await settle()
    assert log[:4] == ["long", "long", "short", "long"]
    for _ in range(10):
        turns.done(BLOCK)
        await settle()
    await asyncio.gather(*tasks)


async def test_turns__who_was_cancelled_has_no_turn() -> None:
    turns, log = Turns(lambda: 0, block_bytes=BLOCK), list[str]()
    await turns.take(BLOCK)
    first, second = (asyncio.ensure_future(post(turns, log, name, blocks=1)) for name in ("first", "second"))
    await settle()
    first.cancel()
    await settle()
    turns.done(BLOCK)
    await second
    assert log == ["second"]
