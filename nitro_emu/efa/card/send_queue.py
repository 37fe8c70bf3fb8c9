"""Send queues: the requests that a program has posted, copied from the ring once.

Only as many requests as the ring has entries are in progress: what a program posts beyond that stays in the ring until
one of them has completed.
"""

from __future__ import annotations

from collections.abc import Callable

from nitro_emu.efa.abi.memory import COUNTER_MASK
from nitro_emu.errors import AbiError


class CardSendQueue:
    """`fetch` entries; `complete` them."""

    def __init__(self, ring: memoryview, *, depth: int, wqe_bytes: int, doorbell: Callable[[], int]) -> None:
        """`ring`: `depth` entries, which the program writes; `doorbell` reads its producer counter."""
        self.depth = depth
        self.wqe_bytes = wqe_bytes
        self.consumed = 0
        self._ring = ring
        self._doorbell = doorbell
        self._outstanding = 0

    def reset(self) -> None:
        """Begin anew: nothing is posted. The doorbell has to be 0."""
        self.consumed = self._outstanding = 0

    @property
    def phase(self) -> int:
        """The phase bit that the next entry must have."""
        return self.consumed // self.depth & 1

    @property
    def is_idle(self) -> bool:
        """Whether all requests that were fetched have completed."""
        return not self._outstanding

    @property
    def waiting(self) -> int:
        """Entries that are posted and not fetched. Raises AbiError if these are more than the ring has."""
        count = (self._doorbell() & COUNTER_MASK) - self.consumed & COUNTER_MASK
        if count > self.depth:
            raise AbiError(f"sq doorbell: {count} entries are more than the ring has ({self.depth})", field="doorbell")
        return count

    def fetch(self, most: int) -> bytes:
        """Return a copy of up to `most` entries, of one round of the ring. Raises AbiError as `waiting` does."""
        at = self.consumed % self.depth
        count = min(most, self.waiting, self.depth - self._outstanding, self.depth - at)
        if count <= 0:
            return b""
        self.consumed += count
        self._outstanding += count
        return bytes(self._ring[at * self.wqe_bytes : (at + count) * self.wqe_bytes])

    def complete(self, count: int) -> None:
        """Note that requests have ended."""
        self._outstanding -= count

    def close(self) -> None:
        """Release the ring."""
        self._ring.release()
