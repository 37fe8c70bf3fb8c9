"""Receive queues: the descriptors that a program has posted, which messages reserve and then take.

1. Descriptors are copied from the ring once: some when the doorbell is looked at, the rest when they are needed. What a
   program writes there later has no effect.
2. A receive request has one or two buffers. Messages reserve the requests that were posted first when they are
   admitted, and take them when they have arrived. What was reserved for a message that never arrives goes back.
3. More descriptors than the ring has, or a request that is not marked properly, break the queue: the queue pair goes to
   the error state.

Requests are tuples in a deque, not columns of NumPy: most come and go one at a time, for which that costs a tenth.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from nitro_emu.efa.abi.io import RX_DESC, RX_DESC_BYTES, RX_FIRST, RX_LAST, RX_RESERVED
from nitro_emu.efa.abi.limits import MAX_KEY, MAX_RECV_SGES, MAX_RQ_DEPTH
from nitro_emu.efa.abi.memory import COUNTER_MASK
from nitro_emu.errors import AbiError

Buffer = tuple[int, int, int]
"""Address, length and lkey."""
_WHOLE: Final = RX_FIRST | RX_LAST


class PostedReceive(NamedTuple):
    """A receive request."""

    req_id: int
    room: int
    """Bytes of its buffers."""
    buffers: tuple[Buffer, ...]


class CardRecvQueue:
    """`fetch` what was posted, `reserve` requests for messages that are admitted, `take` them when these arrive."""

    def __init__(self, ring: memoryview, *, depth: int, doorbell: Callable[[], int]) -> None:
        """`ring`: `depth` descriptors, which the program writes; `doorbell` reads its producer counter."""
        self.depth = depth
        self._ring = ring
        self._doorbell = doorbell
        self._is_broken = False
        self._consumed = 0  # descriptors
        self._held = 0  # of requests that were not taken
        self._partial: list[Buffer] = []  # of a request whose last descriptor was not posted yet
        self._partial_id = 0
        self._posted: deque[PostedReceive] = deque()

    def reset(self) -> None:
        """Begin anew: nothing is posted. The doorbell has to be 0."""
        self._is_broken = False
        self._consumed = self._held = 0
        self._partial.clear()
        self._posted.clear()

    @property
    def available(self) -> int:
        """Requests that are not reserved."""
        return len(self._posted)

    def fetch(self, *, most: int = MAX_RQ_DEPTH) -> int:
        """Copy up to `most` of the descriptors that were posted; return how many.

        Raises AbiError when the program breaks the rules of the ring. Nothing is taken after that, until `reset`.
        """
        if self._is_broken:
            return 0
        try:
            return self._fetch_untrusted(most)
        except AbiError:
            self._is_broken = True
            raise

    def _fetch_untrusted(self, most: int) -> int:
        count = (self._doorbell() & COUNTER_MASK) - self._consumed & COUNTER_MASK
        if not count:
            return 0
        if count + self._held > self.depth:
            raise AbiError(f"rq doorbell: {count} descriptors are more than the ring has free", field="doorbell")
        left = taken = min(count, most)
        while left:
            at = self._consumed % self.depth
            part = min(left, self.depth - at)
            self._add_untrusted(bytes(self._ring[at * RX_DESC_BYTES : (at + part) * RX_DESC_BYTES]))
            self._consumed += part
            self._held += part
            left -= part
        return taken

    def _add_untrusted(self, raw: bytes) -> None:
        for address, req_id, length, control in RX_DESC.iter_unpack(raw):
            if control & RX_RESERVED:
                raise AbiError(f"lkey_ctrl: {control:#x} has reserved bits", field="lkey_ctrl")
            if control & _WHOLE == _WHOLE and not self._partial:
                self._posted.append(PostedReceive(req_id, length, ((address, length, control & MAX_KEY),)))
            else:
                self._add_part(req_id, (address, length, control & MAX_KEY), control)

    def _add_part(self, req_id: int, buffer: Buffer, control: int) -> None:
        if bool(control & RX_FIRST) is bool(self._partial) or len(self._partial) == MAX_RECV_SGES:
            raise AbiError("lkey_ctrl: the descriptors of a request are not marked first, last", field="lkey_ctrl")
        if control & RX_FIRST:
            self._partial_id = req_id
        self._partial.append(buffer)
        if control & RX_LAST:
            room = sum(length for _, length, _ in self._partial)
            self._posted.append(PostedReceive(self._partial_id, room, tuple(self._partial)))
            self._partial.clear()

    def reserve(self, count: int) -> list[PostedReceive]:
        """Reserve the next `count` requests, of which there must be as many."""
        posted = self._posted
        return [posted.popleft() for _ in range(count)]

    def give_back(self, requests: list[PostedReceive]) -> None:
        """Give requests back that were reserved for messages that never arrived; they are the next to be reserved."""
        self._posted.extendleft(reversed(requests))

    def take(self, requests: list[PostedReceive]) -> None:
        """Note that reserved requests are consumed."""
        self._held -= sum([len(request.buffers) for request in requests])

    def take_all(self) -> list[PostedReceive]:
        """Return all requests that are not reserved; they are consumed."""
        requests = self.reserve(len(self._posted))
        self.take(requests)
        return requests

    def close(self) -> None:
        """Release the ring."""
        self._ring.release()
