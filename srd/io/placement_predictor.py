"""Placement prediction: RDMA payload lands in registered memory without a copy, if the next packets are predicted.

Theory of operation.
1. The kernel scatters a datagram before its header can be examined, so the target of a payload has to be predicted: the
   memory behind the payload of the same message that landed last. The core supplies a `PlacementHint`: bytes of the
   same message, within the rights of its key, of which nothing has landed yet. The slots of the next batch are aimed
   there, a whole segment train each: as many slots as hit in the last batch, and twice as many if none missed. One
   train that is not whole makes all slots behind it miss.
2. A prediction hits if by its headers the train belongs exactly there; nothing is copied. Every other train is
   first moved, in one copy, to the buffer that the slot would have landed in, and then handled as usual.
3. A miss temporarily overwrites bytes that the predicted message has not delivered yet. So only queues that have been
   steered to one peer since they were created predict: then only that peer's data can land in that peer's message. A
   failed write may leave any data of its sender in the memory that it was to write.
4. A hint is valid until the next payload is placed, in any queue, as that may be the predicted one. Deregistering a key
   and ending a request also call `clear_hint`, because the memory belongs to its owner from then on.

Trains that are not whole, and the end of a message that does not fill a train, are not predicted.
"""

from __future__ import annotations

from typing import Final

from srd.proto.events import PlacementHint
from srd.proto.wire.data import OPCODE_BITS, GroDatagram, received_bursts_untrusted

PLACED: Final = 1 << 63
"""Flag in a payload offset: the offset is an address of this process, in registered memory."""


class PlacementPredictor:
    """The predictor of one receive queue: `set_hint`, `aim` a batch, check whether a train `matches`."""

    def __init__(self, slots: int) -> None:
        self.context: int | None = None  # of the only peer steered to this queue
        self.hit_bytes = 0
        self.miss_bytes = 0
        self.aimed: list[int] = []  # addresses that the first slots of the batch are aimed at
        self._slots = slots
        self._max_slots = slots  # that may be aimed in the next batch
        self._hits = self._misses = 0  # slots of the last batch
        self._hint: PlacementHint | None = None
        self._first: PlacementHint | None = None  # the hint that the batch is aimed with
        self._train_bytes = 0

    def set_hint(self, hint: PlacementHint | None) -> None:
        """Aim the next batch at what follows the payload placed last; an earlier hint is discarded."""
        self._hint = hint if hint is not None and hint.context == self.context else None

    def clear_hint(self) -> None:
        """Discard the hint: the memory may belong to its owner by now."""
        self._hint = None

    def aim(self, *, train_bytes: int) -> list[int]:
        """Return the addresses that the first slots of a batch are aimed at, each for a whole train."""
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
        """Whether a train belongs where its slot was aimed; count it as hit or miss."""
        first, hit = self._first, False
        bursts = received_bursts_untrusted(datagram)
        if first is not None and len(bursts) == 1:
            burst = bursts[0]
            offset = first.offset + slot * self._train_bytes
            hit = (burst.context, burst.message, burst.flags & OPCODE_BITS, burst.offset) == (
                first.context,
                first.message,
                first.opcode,
                offset,
            )
        if hit:
            self._hits += 1
            self.hit_bytes += datagram.payload_bytes
        else:
            self._misses += 1
            self.miss_bytes += datagram.payload_bytes
        return hit
