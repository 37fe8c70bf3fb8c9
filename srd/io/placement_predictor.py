"""Placement predicted: what is written to or read into registered memory lands there, if the next packets are guessed.

1. The kernel scatters before anyone has seen a header, so where a payload belongs has to be guessed: behind what of its
   message landed last. The core says what follows there (`PlacementHint`): bytes of the same message, within the rights
   of its key, of which nothing has landed yet. The slots of the next batch are aimed at it, a whole series each: as
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

from srd.proto.events import PlacementHint
from srd.proto.wire.data import OPCODE_BITS, GroDatagram, received_bursts_untrusted

PLACED = 1 << 63
"""In a place of an arrival: it is an address of this process, in registered memory."""


class PlacementPredictor:
    """Of one receive queue. `expect` what follows, `aim` a batch, ask if a series `matches`."""

    def __init__(self, slots: int) -> None:
        self.context: int | None = None  # of the only peer whose data comes here
        self.hit_bytes = 0
        self.miss_bytes = 0
        self.aimed: list[int] = []  # addresses that the first slots of the batch are aimed at
        self._slots = slots
        self._max_slots = slots  # that the next batch may be aimed with
        self._hits = self._misses = 0  # slots of the last batch
        self._hint: PlacementHint | None = None
        self._first: PlacementHint | None = None  # what the batch is aimed at
        self._train_bytes = 0

    def set_hint(self, hint: PlacementHint | None) -> None:
        """Aim the next batch at what follows on what was placed last, and at nothing that was said before."""
        self._hint = hint if hint is not None and hint.context == self.context else None

    def clear_hint(self) -> None:
        """Aim at nothing: the memory may be its owner's by now."""
        self._hint = None

    def aim(self, *, train_bytes: int) -> list[int]:
        """Return the addresses of the first slots of a batch; each may take a whole series."""
        hint, self._hint = self._hint, None
        if self._misses:
            self._max_slots = max(self._hits, 1)
        elif self._hits:
            self._max_slots = min(max(self._max_slots, 2 * self._hits), self._slots)
        self._hits = self._misses = 0
        if hint is None:
            self.aimed = []
            return self.aimed
        count = min(hint.length // train_bytes, self._max_slots)
        self._first, self._train_bytes = hint, train_bytes
        self.aimed = [hint.target + slot * train_bytes for slot in range(count)]
        return self.aimed

    def matches(self, slot: int, datagram: GroDatagram) -> bool:
        """Whether a series belongs where its slot was aimed; count it."""
        first, right = self._first, False
        runs = received_bursts_untrusted(datagram)
        if first is not None and len(runs) == 1:
            run = runs[0]
            offset = first.offset + slot * self._train_bytes
            right = (run.context, run.message, run.flags & OPCODE_BITS, run.offset) == (
                first.context,
                first.message,
                first.opcode,
                offset,
            )
        if right:
            self._hits += 1
            self.hit_bytes += datagram.payload_bytes
        else:
            self._misses += 1
            self.miss_bytes += datagram.payload_bytes
        return right
