"""Placement predicted: what is written to or read into registered memory lands there, if the next packets are guessed.

1. The kernel scatters before anyone has seen a header, so where a payload belongs has to be guessed: behind what of its
   message landed last. The core says what follows there (`Follows`): bytes of the same message, within the rights of
   its key, of which nothing has landed yet. The slots of the next batch are aimed at it, a whole series each.
2. A guess is right if the headers say that the series belongs just there: it has landed, and nothing is copied. Every
   other series is first brought home, to where the slot would have landed, in one copy; then all goes on as always.
3. A wrong guess overwrites for a moment what its message is still to bring. So only queues that were steered to one
   peer all their life predict: what lands in a peer's message is that peer's. A write that fails may leave anything
   of its sender's where it would have written.
4. Whoever withdraws a key or ends a request calls `forget`: the memory is its owner's at once.

Series shorter than whole, and the end of a message that fills no series, are not guessed at.
"""

from __future__ import annotations

from srd.proto.events import Follows
from srd.proto.wire import OPCODE_BITS, Arrival, runs_untrusted

PLACED = 1 << 63
"""In a place of an arrival: it is an address of this process, in registered memory."""


class Prediction:
    """Of one receive queue. `expect` what follows, `aim` a batch, ask if a series `lies_right`."""

    def __init__(self) -> None:
        self.context: int | None = None  # of the only peer whose data comes here
        self.right_bytes = 0
        self.wrong_bytes = 0
        self.aimed: list[int] = []  # addresses that the first slots of the batch are aimed at
        self._follows: Follows | None = None
        self._first: Follows | None = None  # what the batch is aimed at
        self._series_bytes = 0

    def expect(self, follows: Follows) -> None:
        """Aim the next batch at what follows."""
        if follows.context == self.context:
            self._follows = follows

    def forget(self) -> None:
        """Aim at nothing: the memory may be its owner's by now."""
        self._follows = None

    def aim(self, slots: int, *, series_bytes: int) -> list[int]:
        """Return the addresses of the first slots of a batch; each may take a whole series."""
        follows, self._follows = self._follows, None
        if follows is None:
            self.aimed = []
            return self.aimed
        count = min(follows.length // series_bytes, slots)
        self._first, self._series_bytes = follows, series_bytes
        self.aimed = [follows.place + slot * series_bytes for slot in range(count)]
        return self.aimed

    def lies_right(self, slot: int, arrival: Arrival) -> bool:
        """Whether a series belongs where its slot was aimed; count it."""
        first, right = self._first, False
        runs = runs_untrusted(arrival)
        if first is not None and len(runs) == 1:
            run = runs[0]
            offset = first.offset + slot * self._series_bytes
            right = (run.context, run.message, run.flags & OPCODE_BITS, run.offset) == (
                first.context,
                first.message,
                first.opcode,
                offset,
            )
        if right:
            self.right_bytes += arrival.payload_bytes
        else:
            self.wrong_bytes += arrival.payload_bytes
        return right
