"""Two good programs in one process: an endless ping-pong between two devices, every byte compared.

Says `ready`, then starts. The reply to each line on stdin is one event:

    total {messages, wrong_bytes, failed, slowest_s}
"""

from __future__ import annotations

import asyncio
import select
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from netns.base.output import emit
from nitro_emu.efa.perf.end import QueuePairEnd, QueuePairRoom
from nitro_emu.efa.verbs import SendOp
from srd.perf.errors import PerfError

GUARD: Final = 0xA5
"""What lies around a message, and must not change."""
LENGTHS: Final = (1, 64, 1000, 4096, 8900)
BOUND_S: Final = 60.0
FIRST, LANDING, WRITTEN, SOURCE = range(4)
"""Slots: where the first message lands, all others, what the other end writes, and what this one sends."""
ROOM: Final = QueuePairRoom(sends=2, receives=1, message_bytes=64 << 10, slots=4)
AT: Final = 16
"""Where in its slot a write begins."""


def pattern(number: int, *, length: int) -> npt.NDArray[np.uint8]:
    """Return the contents of message `number`: each eight bytes are unique, so that misplacement shows."""
    lanes = (np.arange(-(-length // 8), dtype=np.uint64) + np.uint64(1 + number)) * np.uint64(0x9E3779B97F4A7C15)
    return lanes.view(np.uint8)[:length]


class Game:
    """The ping-pong; `step` plays one message there."""

    def __init__(self, ends: tuple[QueuePairEnd, QueuePairEnd]) -> None:
        self._ends = ends
        self._number = 0
        self._expected = np.full((SOURCE, ROOM.message_bytes), GUARD, np.uint8)
        self.totals: dict[str, float] = {"messages": 0, "wrong_bytes": 0, "failed": 0, "slowest_s": 0.0}
        for end, other in (ends, ends[::-1]):
            end.rows[:] = GUARD
            end.connect(other.address)

    async def step(self) -> None:
        """Send a message and write it, one way; compare every byte."""
        sender, receiver = self._ends[:: 1 if self._number % 2 else -1]
        number, length, started = self._number, LENGTHS[self._number % len(LENGTHS)], time.monotonic()
        self._number += 1
        sender.rows[SOURCE, :length] = pattern(number, length=length)
        failed = await self._fails(sender, partial(_send, sender, length=length))
        failed += await self._fails(receiver, partial(self._receive, receiver, number=number, length=length))
        self.totals["failed"] += failed
        self.totals["messages"] += 1
        self.totals["slowest_s"] = max(self.totals["slowest_s"], time.monotonic() - started)

    @staticmethod
    async def _fails(end: QueuePairEnd, work: Callable[[], None]) -> int:
        """Return 1 if what an end waits for fails, or does not come in time."""
        try:
            await asyncio.wait_for(end.run(work), BOUND_S)
        except (PerfError, TimeoutError) as error:
            print(f"neighbour: {str(error) or f'nothing came in {BOUND_S:.0f} s'}", file=sys.stderr, flush=True)
            return 1
        return 0

    def _receive(self, end: QueuePairEnd, *, number: int, length: int) -> None:
        """Receive a message; compare all memory with what must be in it, and reset it."""
        slot = end.received_one().wr_id
        self._expected[:] = GUARD
        self._expected[slot, :length] = self._expected[WRITTEN, AT : AT + length] = pattern(number, length=length)
        found = end.rows[:SOURCE]
        self.totals["wrong_bytes"] += int(np.count_nonzero(found != self._expected))
        found[:] = GUARD
        end.receive(np.array([LANDING], np.uint64))


def _send(end: QueuePairEnd, *, length: int) -> None:
    """Send the source, and write it to the other end; wait for both."""
    source = np.array([SOURCE * ROOM.message_bytes], np.uint64)
    there = np.array([WRITTEN * ROOM.message_bytes + AT], np.uint64)
    for op in (SendOp.RDMA_WRITE, SendOp.SEND):
        end.post(op, source, length=length, memory=end.memory, remote_offsets=there, rkey=end.remote.rkey)
    end.drain()


async def play(*, directory: str, names: Sequence[str]) -> int:
    """Play until stdin ends."""
    with ExitStack() as stack:
        one, two = (QueuePairEnd(stack, ROOM, device=name, run_dir=Path(directory), events=False) for name in names)
        game = Game((one, two))
        await game.step()
        emit("ready")
        while True:
            await game.step()
            if select.select([sys.stdin], [], [], 0)[0]:
                if not sys.stdin.readline():
                    return 0
                emit("total", **game.totals)
