"""Writes of the same blocks follow each other in the order of their arrival.

A host may have two writes of one block under way, and take either as the result. Replicas that took them in different
orders would differ for ever, so they are not under way together. A write of part of a block reads the block first, and
must not bring back what another write has replaced meanwhile. Reads need no order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class _Turn:
    first: int
    end: int
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class WriteOrder:
    """The writes under way, and those that wait for them: few, so that they are looked through."""

    def __init__(self) -> None:
        self._turns: list[_Turn] = []  # in the order of arrival

    @asynccontextmanager
    async def turn(self, first: int, end: int) -> AsyncIterator[None]:
        """Have the blocks from `first` to before `end` for a `with` block.

        Waits for earlier turns only, so no two wait for each other; also if it is cancelled, its own ends.
        """
        before = [turn for turn in self._turns if turn.first < end and first < turn.end]
        own = _Turn(first, end)
        self._turns.append(own)
        try:
            for turn in before:
                await turn.ended.wait()
            yield
        finally:
            self._turns.remove(own)
            own.ended.set()
