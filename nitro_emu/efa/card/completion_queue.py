"""Completion queues: a ring that the card writes and the program reads.

1. An entry's first 8 bytes hold the phase bit and are stored last, in one piece: a program that sees the phase bit sees
   the entry. (x86 keeps the order of stores; on other processors it relies on the time between two of the interpreter's
   steps.)
2. The program stores its consumer counter in the queue's doorbell. A ring without a free entry is an overrun, the
   program's mistake: the queue is broken from then on, and so are the queue pairs that complete into it.
3. An armed doorbell asks for one event: for the next completion, or at once if there are
   completions that the program has not consumed when it arms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from devmem.region import Region
from nitro_emu.efa.abi.io import CQE_BYTES, CQE_EX_BYTES
from nitro_emu.efa.abi.memory import COUNTER_MASK, cq_bytes, parse_cq_doorbell
from nitro_emu.efa.card.shared import EventSender, card_written_region

_LANE_BYTES: Final = 8
_PHASE_SHIFT: Final = 24
FEW: Final = 4
"""Up to so many entries are stored one by one, more by NumPy."""


class CardCompletionQueue:
    """Stores completions. `lanes` of an entry are its bytes as little-endian 64-bit words, without the phase bit."""

    def __init__(
        self,
        number: int,
        *,
        slot: int,
        depth: int,
        entry_bytes: int,
        doorbell: Callable[[], int],
        events: EventSender | None,
        on_completion: Callable[[], None],
        on_overrun: Callable[[CardCompletionQueue], None],
    ) -> None:
        """`slot`: of its doorbell, whose word `doorbell` reads; `events`: None: the queue is only polled."""
        self.number = number
        self.slot = slot
        self.depth = depth
        self.entry_bytes = entry_bytes
        self.events = events
        self.users = 0
        self.is_broken = False
        self.region: Region = card_written_region(cq_bytes(depth, entry_bytes=entry_bytes), name="nitro-cq")
        self._view = memoryview(self.region)
        self._lanes = self._view.cast("Q")
        self._rows: npt.NDArray[np.uint64] = np.frombuffer(self._view, np.uint64)[
            : depth * entry_bytes // _LANE_BYTES
        ].reshape(depth, entry_bytes // _LANE_BYTES)
        self._producer = 0
        self._doorbell = doorbell
        self._on_completion = on_completion
        self._on_overrun = on_overrun
        self._served_arm: int | None = None  # `cmd_sn` of the last request for an event that was served

    def push(self, first: int, second: int, *, extra: bytes = b"") -> None:
        """Store one entry; `extra`: the upper half of a wide one."""
        if not self._has_room(1):
            return
        slot, producer = self._producer % self.depth, self._producer
        at = slot * self.entry_bytes // _LANE_BYTES
        if self.entry_bytes == CQE_EX_BYTES:
            start = slot * self.entry_bytes + CQE_BYTES
            self._view[start : start + CQE_BYTES] = extra.ljust(CQE_BYTES, b"\0")
        self._lanes[at + 1] = second
        self._lanes[at] = first | (producer // self.depth & 1 ^ 1) << _PHASE_SHIFT
        self._producer = producer + 1
        self._notify()

    def push_many(self, first: npt.NDArray[np.uint64], second: npt.NDArray[np.uint64], *, extra: bytes = b"") -> None:
        """Store many entries; all have the same `extra`."""
        if len(first) <= FEW:
            for one, two in zip(first.tolist(), second.tolist(), strict=True):
                self.push(one, two, extra=extra)
            return
        if not self._has_room(len(first)):
            return
        while len(first):
            slot = self._producer % self.depth
            count = min(len(first), self.depth - slot)
            rows = self._rows[slot : slot + count]
            if self.entry_bytes == CQE_EX_BYTES:
                rows[:, 2:] = np.frombuffer(extra.ljust(CQE_BYTES, b"\0"), np.uint64)
            rows[:, 1] = second[:count]
            rows[:, 0] = first[:count] | np.uint64((self._producer // self.depth & 1 ^ 1) << _PHASE_SHIFT)
            self._producer += count
            first, second = first[count:], second[count:]
        self._notify()

    def _has_room(self, count: int) -> bool:
        if self.is_broken:
            return False
        unread = self._producer - self._doorbell() & COUNTER_MASK  # its low bits are the consumer counter
        if unread + count > self.depth:
            self.is_broken = True
            self._on_overrun(self)
            return False
        return True

    def _notify(self) -> None:
        self._on_completion()
        if self.events is not None:
            self.on_doorbell(has_new=True)

    def on_doorbell(self, *, has_new: bool = False) -> None:
        """Send the event that the program has asked for, if there is a completion that it has not consumed."""
        word = parse_cq_doorbell(self._doorbell())
        if self.events is None or not word.arm or word.cmd_sn == self._served_arm:
            return
        if has_new or self._producer & COUNTER_MASK != word.consumer:
            self._served_arm = word.cmd_sn
            self.events.signal()

    def close(self) -> None:
        """Release the ring, and the way to wake the program."""
        self.is_broken = True
        self._lanes.release()
        self._rows = np.zeros((0, 2), np.uint64)
        self._view.release()
        self.region.close()
        if self.events is not None:
            self.events.close()
