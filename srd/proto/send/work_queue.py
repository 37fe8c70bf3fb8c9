"""The work queue: messages of this end that have not ended, by the caller's number, by message number, and by deadline.

A posted work request becomes a work queue entry (WQE, the RDMA term); so does a RESPONSE, which has no work request.

All requests of a peer have the same time limit, so the first one posted is the first overdue. The limit counts from the
peer's first turn after the posting, which follows at once: posting itself needs no clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from srd.proto.lazy_deque import LazyDeque
from srd.proto.send.batch import SendBatch
from srd.proto.wire.data import HEADER_BYTES, OPCODE_BITS, Opcode, takes_credit

MAX_ENDED: Final = 64
"""Ended requests that are kept beyond as many as are open, until the first one posted has ended: to remove one from the
middle of the queue would cost more than to keep it. One request that the responder leaves open must not keep all."""
_BLOCK_BITS: Final = 7
"""Batches are found by blocks of so many message numbers: 128 are a batch of the usual size."""
_SEND, _READ = int(Opcode.SEND), int(Opcode.READ)  # plain integers compare faster than an enum's members


class WorkQueueEntry:
    """A message to be sent."""

    request: int | None
    """The caller's number of it; None for a RESPONSE."""
    message: int
    payload_offset: int
    length: int
    """As its packets give it; a read's is that of the answer."""
    immediate: int
    flags: int
    """As its packets give them: an opcode, and IMMEDIATE."""
    key: int
    """As its packets give it."""
    remote_offset: int
    """READ, WRITE: where the range begins in the other end's registration."""
    local_key: int
    """READ, RESPONSE: the registration of this end that it writes or reads."""
    local_offset: int
    """READ: where in that registration the answer begins."""
    flow: int
    """WRITE, RESPONSE: see `WorkRequest.flow`."""
    opcode: int
    """The `Opcode` of `flags`, computed once since it is read several times per message."""
    needs_credit: bool
    """Whether it takes one message of the responder's credit: a SEND, or a WRITE with immediate."""
    credit_bytes: int
    """Bytes that it takes of the responder's memory for messages."""
    carried_bytes: int
    """Its own payload: a READ carries none, whatever length it requests."""
    next_offset: int = 0
    """First byte that is not packetized yet."""
    unacknowledged: int = 0
    """Packets that are packetized and not acknowledged."""
    packetized: bool = False
    """Whether all of it is packetized."""
    end_psn: int = 0
    """PSN after its last; 0: nothing is packetized."""
    ended: bool = False
    """Whether its request has completed."""
    aborted: bool = False
    """Whether it was aborted: packets of it that are sent from now on have the flag ABORTED."""
    reason: int = 0
    """Aborted: the status that it was aborted with."""
    refused: bool = False
    """Whether it was aborted because the responder refused it: its missing packets had arrived."""
    rnr_count: int = 0
    """The peer's count of RNRs when it was posted (see `send.flow_control`)."""
    deadline_at: float = math.inf
    batch: SendBatch | None = None
    """For a batch: `request` and `message` are those of its first message, the others' follow."""

    def __init__(  # noqa: PLR0917 - a field each
        self,
        request: int | None,
        message: int,
        payload_offset: int,
        length: int,
        immediate: int,
        flags: int = Opcode.SEND,
        key: int = 0,
        remote_offset: int = 0,
        local_key: int = 0,
        local_offset: int = 0,
        flow: int = 0,
    ) -> None:
        self.request = request
        self.message = message
        self.payload_offset = payload_offset
        self.length = length
        self.immediate = immediate
        self.flags = flags
        self.key = key
        self.remote_offset = remote_offset
        self.local_key = local_key
        self.local_offset = local_offset
        self.flow = flow
        self.opcode = self.flags & OPCODE_BITS
        self.needs_credit = takes_credit(self.flags)
        self.credit_bytes = self.length if self.opcode == _SEND else 0
        self.carried_bytes = 0 if self.opcode == _READ else self.length

    @property
    def open_requests(self) -> list[int]:
        """The caller's numbers of those of its requests that have not ended."""
        if self.request is None:
            return []
        if self.batch is None:
            return [self.request]
        return [self.request + index for index in self.batch.open()]

    def left_bytes(self, segment_bytes: int) -> int:
        """Return what is not packetized yet, in packets of `segment_bytes` with their headers."""
        if self.batch is not None:
            return (self.batch.count - self.batch.packetized) * (HEADER_BYTES + self.length)
        payload_bytes = self.carried_bytes - self.next_offset
        return payload_bytes + max(-(-payload_bytes // segment_bytes), 1) * HEADER_BYTES


class WorkQueue:
    """`add`, find and `remove` messages; `start_timers` of the new ones, find the `overdue` ones."""

    __slots__ = ("_batches", "_by_key", "_by_message", "_by_request", "_timed", "_untimed")

    def __init__(self) -> None:
        self._by_request: dict[int, WorkQueueEntry] = {}
        self._by_message: dict[int, WorkQueueEntry] = {}
        self._batches: dict[int, list[WorkQueueEntry]] = {}  # by block of message numbers
        self._by_key: dict[int, dict[int, WorkQueueEntry]] = {}  # READs and RESPONSEs by registration, then message
        self._untimed: list[WorkQueueEntry] = []
        self._timed = LazyDeque[WorkQueueEntry]()  # may contain some that have ended

    def __bool__(self) -> bool:
        """Whether a request of the caller is open."""
        return bool(self._by_request)

    @property
    def count(self) -> int:
        """How many requests of the caller are open; a batch is one."""
        return len(self._by_request)

    @property
    def open(self) -> list[WorkQueueEntry]:
        """The open messages that are requests of the caller."""
        return list(self._by_request.values())

    @property
    def open_requests(self) -> list[int]:
        """The caller's numbers of the open requests."""
        return [name for wqe in self._by_request.values() for name in wqe.open_requests]

    def add(self, wqe: WorkQueueEntry) -> None:
        """Add a message. A RESPONSE has no request number, and no deadline but that of the READ."""
        self._by_message[wqe.message] = wqe
        if wqe.batch is not None:
            for block in _blocks(wqe.message, wqe.batch):
                self._batches.setdefault(block, []).append(wqe)
        if wqe.local_key:
            self._by_key.setdefault(wqe.local_key, {})[wqe.message] = wqe
        if wqe.request is not None:
            self._by_request[wqe.request] = wqe
            self._untimed.append(wqe)

    def remove(self, wqe: WorkQueueEntry) -> None:
        """Remove a message that has ended."""
        if self._by_message.pop(wqe.message, None) is not None:
            self._forget(wqe)
        wqe.ended = True
        if wqe.request is not None:
            self._by_request.pop(wqe.request, None)
        if not self._by_message:  # nor any request: emptied dictionaries keep their tables (see `lazy_deque`)
            self._by_message.clear()
            self._by_key.clear()
            self._batches.clear()
            self._by_request.clear()

    def _forget(self, wqe: WorkQueueEntry) -> None:
        if wqe.batch is not None:
            for block in _blocks(wqe.message, wqe.batch):
                batches = self._batches[block]
                batches.remove(wqe)
                if not batches:
                    del self._batches[block]
        if wqe.local_key:
            same = self._by_key[wqe.local_key]
            del same[wqe.message]
            if not same:
                del self._by_key[wqe.local_key]

    def by_request(self, name: int) -> WorkQueueEntry | None:
        """Return the open request of this number; a batch is found by its first."""
        return self._by_request.get(name)

    def by_message(self, message: int) -> WorkQueueEntry | None:
        """Return the open message of this number."""
        return self._by_message.get(message)

    def batch_of(self, message: int) -> WorkQueueEntry | None:
        """Return the open batch that has a message of this number."""
        for wqe in self._batches.get(message >> _BLOCK_BITS, ()):
            if wqe.batch is not None and 0 <= message - wqe.message < wqe.batch.count:
                return wqe
        return None

    def using_keys(self, is_wanted: Callable[[int], bool]) -> list[WorkQueueEntry]:
        """Return the open READs and RESPONSEs that use these registrations of this end."""
        return [wqe for key, same in self._by_key.items() if is_wanted(key) for wqe in same.values()]

    def started_sends(self) -> list[WorkQueueEntry]:
        """Return the open sends that have a payload and of which some was packetized."""
        return [o for o in self._by_request.values() if o.opcode == Opcode.SEND and o.end_psn and o.length]

    def start_timers(self, *, deadline_at: float) -> Sequence[WorkQueueEntry]:
        """Set the deadline of the requests added since and still open; return them."""
        if not self._untimed:
            return ()
        new = [wqe for wqe in self._untimed if not wqe.ended]
        self._untimed.clear()
        for wqe in new:
            wqe.deadline_at = deadline_at
        self._timed.extend(new)
        if len(self._timed) > 2 * self.count + MAX_ENDED:  # amortised: constant cost per request
            left = [wqe for wqe in self._timed if not wqe.ended]
            self._timed = LazyDeque[WorkQueueEntry]()
            self._timed.extend(left)
        return new

    @property
    def deadline_at(self) -> float | None:
        """When the next request is overdue."""
        while self._timed and self._timed[0].ended:
            self._timed.popleft()
        return self._timed[0].deadline_at if self._timed else None

    def overdue(self, *, now: float) -> list[WorkQueueEntry]:
        """Return the requests whose deadline has passed."""
        found = []
        while (at := self.deadline_at) is not None and now >= at:
            found.append(self._timed.popleft())
        return found


def _blocks(message: int, batch: SendBatch) -> range:
    """Return the blocks of message numbers that a batch from `message` on has a part of."""
    return range(message >> _BLOCK_BITS, (message + batch.count - 1 >> _BLOCK_BITS) + 1)
