"""Receive queues: the descriptors that a program has posted, which messages reserve and then take.

1. Descriptors are copied from the ring once, when the doorbell is looked at; what the program writes there later has no
   effect.
2. A receive request has one or two buffers. It is known by a slot. Messages reserve the requests that were posted first
   when they are admitted, and take them when they have arrived. What was reserved for a message that never arrives
   goes back.
3. More descriptors than the ring has, or a request that is not marked properly, break the queue: the queue pair goes to
   the error state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from nitro_emu.abi.io import RX_DESC_BYTES, RX_DESC_DTYPE, RX_FIRST, RX_LAST, RX_RESERVED
from nitro_emu.abi.limits import MAX_KEY, MAX_RECV_SGES
from nitro_emu.abi.memory import COUNTER_MASK
from nitro_emu.errors import AbiError

_MARKS = RX_FIRST | RX_LAST
Slots = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


class RecvQueue:
    """`fetch` what was posted, `reserve` requests for messages that are admitted, `take` them when these arrive."""

    def __init__(self, ring: memoryview, *, depth: int, doorbell: Callable[[], int]) -> None:
        """`ring`: `depth` descriptors, which the program writes; `doorbell` reads its producer counter."""
        self.depth = depth
        self._ring = ring
        self._doorbell = doorbell
        self.reset()

    def reset(self) -> None:
        """Begin anew: nothing is posted. The doorbell has to be 0."""
        depth = self.depth
        self._consumed = 0  # descriptors
        self._open: list[tuple[int, int, int, int]] = []  # of a request whose last descriptor was not posted yet
        self._req_ids = np.zeros(depth, np.uint64)
        self._buffers = np.zeros((MAX_RECV_SGES, 3, depth), np.uint64)  # address, length, lkey of each buffer
        self._room = np.zeros(depth, np.uint64)  # bytes of each request
        self._sizes = np.zeros(depth, np.uint8)  # descriptors of each request
        self._descriptors = 0  # of requests that were not taken
        self._free = np.arange(depth)  # a stack of the slots without a request
        self._free_count = depth
        self._order = np.zeros(depth, np.int64)  # a ring of the slots, as posted
        self._posted = 0  # requests
        self._reserved = 0  # of these, not counting those that were returned
        self._returned: deque[int] = deque()  # slots that were reserved for messages that never arrived

    @property
    def available(self) -> int:
        """Requests that are not reserved."""
        return self._posted - self._reserved + len(self._returned)

    def fetch(self) -> None:
        """Copy the descriptors that were posted. Raises AbiError when the program breaks the rules of the ring."""
        count = (self._doorbell() & COUNTER_MASK) - self._consumed & COUNTER_MASK
        if not count:
            return
        if count + self._descriptors + len(self._open) > self.depth:
            raise AbiError(f"rq doorbell: {count} descriptors are more than the ring has free", field="doorbell")
        while count:
            at = self._consumed % self.depth
            part = min(count, self.depth - at)
            raw = bytes(self._ring[at * RX_DESC_BYTES : (at + part) * RX_DESC_BYTES])
            self._add_untrusted(np.frombuffer(raw, RX_DESC_DTYPE))
            self._consumed += part
            count -= part

    def _add_untrusted(self, rows: npt.NDArray[np.void]) -> None:
        marks = rows["lkey_ctrl"] & np.uint32(_MARKS)
        if (rows["lkey_ctrl"] & np.uint32(RX_RESERVED)).any():
            raise AbiError("rq: a descriptor has reserved bits", field="lkey_ctrl")
        if not self._open and bool((marks == _MARKS).all()):  # one buffer each, the common case
            slots = self._new_slots(len(rows))
            self._req_ids[slots] = rows["req_id"]
            self._buffers[1:, :, slots] = 0
            self._buffers[0, 0, slots] = rows["address"]
            self._room[slots] = self._buffers[0, 1, slots] = rows["length"]
            self._buffers[0, 2, slots] = rows["lkey_ctrl"] & np.uint32(MAX_KEY)
            self._sizes[slots] = 1
            self._descriptors += len(rows)
            return
        for address, req_id, length, control in rows.tolist():
            if bool(control & RX_FIRST) is bool(self._open) or len(self._open) == MAX_RECV_SGES:
                raise AbiError("rq: descriptors of a request are not marked first, last", field="lkey_ctrl")
            self._open.append((req_id, address, length, control & MAX_KEY))
            if control & RX_LAST:
                self._add_open()

    def _new_slots(self, count: int) -> Slots:
        """Return slots for the next `count` requests, and queue these."""
        self._free_count -= count
        slots = self._free[self._free_count : self._free_count + count].copy()
        self._order[(self._posted + np.arange(count)) % self.depth] = slots
        self._posted += count
        return slots

    def _add_open(self) -> None:
        slot = int(self._new_slots(1)[0])
        self._req_ids[slot] = self._open[0][0]
        self._buffers[:, :, slot] = 0
        for index, (_, *buffer) in enumerate(self._open):
            self._buffers[index, :, slot] = buffer
        self._room[slot] = sum(length for _, _, length, _ in self._open)
        self._sizes[slot] = len(self._open)
        self._descriptors += len(self._open)
        self._open.clear()

    def reserve(self, count: int) -> Slots:
        """Reserve the next `count` requests, of which there must be as many; return their slots."""
        returned = [self._returned.popleft() for _ in range(min(count, len(self._returned)))]
        fresh = count - len(returned)
        slots = self._order[(self._reserved + np.arange(fresh)) % self.depth]
        self._reserved += fresh
        return np.concatenate((np.array(returned, np.int64), slots)) if returned else slots

    def give_back(self, slots: Slots) -> None:
        """Give requests back that were reserved for messages that never arrived; they are the next to be reserved."""
        self._returned.extendleft(reversed(slots.tolist()))

    def room(self, slots: Slots) -> int:
        """Return the bytes that the smallest of these requests has room for."""
        return int(self._room[slots].min())

    def spans(self, slots: Slots) -> Iterator[tuple[int, int, int]]:
        """Yield the memory of these requests as (address, length, lkey): of all that have one lkey, as one span.

        If a span is within a memory region, so are all the buffers in it.
        """
        for address, length, lkey in self._buffers[:, :, slots]:
            used = length > 0
            for key in np.unique(lkey[used]).tolist():
                mine = used & (lkey == key)
                low = int(address[mine].min())
                yield low, int((address[mine] + length[mine]).max()) - low, int(key)

    def take(self, slots: Slots) -> tuple[Words, Words]:
        """Return the request ids, and the buffers as [buffer, (address, length, lkey), request]; they are consumed."""
        self._descriptors -= int(self._sizes[slots].sum())
        self._free[self._free_count : self._free_count + len(slots)] = slots
        self._free_count += len(slots)
        return self._req_ids[slots], self._buffers[:, :, slots]

    def take_all(self) -> list[int]:
        """Return the ids of all requests that are not reserved; they are consumed."""
        req_ids, _ = self.take(self.reserve(self.available))
        return [int(req_id) for req_id in req_ids]

    def close(self) -> None:
        """Release the ring."""
        self._ring.release()
