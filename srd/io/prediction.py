"""Placement predicted: what is written to or read into registered memory lands there, if the next packets are guessed.

1. The kernel scatters before anyone has seen a header, so where a payload belongs has to be guessed: behind what of its
   message landed last. The core says what follows there (`Follows`): bytes of the same message, within the rights of
   its key, of which nothing has landed yet. The slots of the next batch are aimed at it, a whole series each: as
   many as were right in the last batch, and twice as many if none was wrong. A series that is not whole misleads all
   behind it.
2. A guess is right if the headers say that the series belongs just there: it has landed, and nothing is copied. Every
   other series is first brought home, to where the slot would have landed, in one copy; then all goes on as always.
3. A wrong guess overwrites for a moment what its message is still to bring. So only queues that were steered to one
   peer all their life predict: what lands in a peer's message is that peer's. A write that fails may leave anything
   of its sender's where it would have written.
4. A hint holds until the next thing is placed, in whichever queue: what was to follow may be what has landed now.
   Whoever withdraws a key or ends a request calls `forget`, too: the memory is its owner's at once.

Series shorter than whole, and the end of a message that fills no series, are not guessed at.
"""

from __future__ import annotations

from srd.proto.events import Follows
from srd.proto.wire import OPCODE_BITS, Arrival, runs_untrusted

PLACED = 1 << 63
"""In a place of an arrival: it is an address of this process, in registered memory."""


class Prediction:
    """Of one receive queue. `expect` what follows, `aim` a batch, ask if a series `lies_right`."""

    def __init__(self, slots: int) -> None:
        self.context: int | None = None  # of the only peer whose data comes here
        self.right_bytes = 0
        self.wrong_bytes = 0
        self.aimed: list[int] = []  # addresses that the first slots of the batch are aimed at
        self._slots = slots
        self._most = slots  # that the next batch may be aimed with
        self._right = self._wrong = 0  # slots of the last batch
        self._follows: Follows | None = None
        self._first: Follows | None = None  # what the batch is aimed at
        self._series_bytes = 0

    def expect(self, follows: Follows | None) -> None:
        """Aim the next batch at what follows on what was placed last, and at nothing that was said before."""
        self._follows = follows if follows is not None and follows.context == self.context else None

    def forget(self) -> None:
        """Aim at nothing: the memory may be its owner's by now."""
        self._follows = None

    def aim(self, *, series_bytes: int) -> list[int]:
        """Return the addresses of the first slots of a batch; each may take a whole series."""
        follows, self._follows = self._follows, None
        if self._wrong:
            self._most = max(self._right, 1)
        elif self._right:
            self._most = min(max(self._most, 2 * self._right), self._slots)
        self._right = self._wrong = 0
        if follows is None:
            self.aimed = []
            return self.aimed
        count = min(follows.length // series_bytes, self._most)
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
            self._right += 1
            self.right_bytes += arrival.payload_bytes
        else:
            self._wrong += 1
            self.wrong_bytes += arrival.payload_bytes
        return right
