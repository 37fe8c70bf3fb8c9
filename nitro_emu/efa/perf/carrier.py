"""What client and server do with a queue pair for one size: `srd.perf.sweep`'s workload, in a thread.

A READ is answered by the card alone; all of its round trip is its time. The WRITEs of a latency have an immediate,
because the packets of a message arrive in any order, so that no byte of it says that it is complete.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from devmem.registry import Access
from nitro_emu.efa.perf.end import QueuePairEnd, QueuePairRoom, U64Array
from nitro_emu.efa.verbs import SendOp, SendRequest, byte_lengths
from srd.perf.errors import PerfError
from srd.perf.figures import LatencyFigures
from srd.perf.payload import PayloadSource, Shifted
from srd.perf.stream import Fail
from srd.perf.sweep.kernel import round_trips
from srd.perf.sweep.measures import Check, Measure, Series, latency_of
from srd.perf.sweep.memory import MessageSlots
from srd.perf.sweep.plan import Operation, Sweep
from srd.perf.sweep.progress import MessageQuota
from srd.perf.sweep.roles import Readable, Role, Written, arrived
from srd.perf.sweep.rows import Rows, Tally

MAX_SEND_BYTES: Final = 65535
"""Of a datagram."""
LATENCY_DEPTH: Final = 16
"""Requests that may be open, and receive requests: one is in use, the others cover a completion that is late."""
RECEIVE_DEPTH_FACTOR: Final = 4
"""Receive requests for each request that the client has at a time, as with perftest: a receiver that is slow to post
them again would refuse messages."""
MAX_LANDING_BYTES: Final = 64 << 20


class Verb(StrEnum):
    """How payload is moved."""

    SEND = "send"
    WRITE = "write"
    READ = "read"


_OPERATIONS: Final = {Verb.SEND: Operation.RATE, Verb.WRITE: Operation.WRITE, Verb.READ: Operation.READ}
_OPS: Final = {Verb.SEND: SendOp.SEND, Verb.WRITE: SendOp.RDMA_WRITE, Verb.READ: SendOp.RDMA_READ}


def operation_of(verb: Verb, *, latency: bool) -> Operation:
    """Return what a sweep calls it."""
    return Operation.LATENCY if latency else _OPERATIONS[verb]


def room_of(sweep: Sweep, verb: Verb) -> QueuePairRoom:
    """Return what an end needs."""
    sizes = [min(size, MAX_SEND_BYTES) for size in sweep.sizes] if verb is Verb.SEND else sweep.sizes
    if sweep.operation is Operation.LATENCY:
        return QueuePairRoom(LATENCY_DEPTH, LATENCY_DEPTH, message_bytes=max(sizes), slots=1)
    depth = max(map(sweep.depth, sizes))
    if sweep.operation is not Operation.RATE:
        return QueuePairRoom(depth, 1, message_bytes=1, slots=1)
    slots = min(RECEIVE_DEPTH_FACTOR * depth, MAX_LANDING_BYTES // max(sizes))
    return QueuePairRoom(depth, slots, message_bytes=max(sizes), slots=slots)


class QueuePairCarrier:
    """A sweep's carrier (`srd.perf.sweep.carrier`) of one queue pair."""

    peers = 1
    dropped_packets = 0
    """Those are the card's, see nitro-card metrics."""

    def __init__(self, sweep: Sweep, verb: Verb, end: QueuePairEnd) -> None:
        self._sweep, self._verb, self._end = sweep, verb, end

    def measure(self, size_bytes: int, *, number: int, keys: Sequence[int], check: Check) -> Measure:  # noqa: ARG002 - a number is of what has a connection for each size
        """Return what the client does for a size."""
        if self._sweep.operation is Operation.LATENCY:
            return VerbsRoundTrips(self._sweep, self._verb, self._end, size_bytes=size_bytes, key=keys[0])
        if self._verb is Verb.SEND:
            return VerbsSends(self._sweep, self._end, size_bytes=size_bytes)
        return VerbsAccesses(self._sweep, self._verb, self._end, size_bytes=size_bytes, key=keys[0], check=check)

    def role(self, size_bytes: int, *, number: int, fail: Fail) -> Role:  # noqa: ARG002 - as above
        """Return what the server does for a size."""
        sweep, end, verify = self._sweep, self._end, self._sweep.verify
        if self._verb is Verb.READ:
            return CardReadable(end, [None], size_bytes=size_bytes, fail=fail)
        if sweep.operation is Operation.LATENCY:
            return VerbsResponder(self._verb, end, size_bytes=size_bytes, verify=verify, fail=fail)
        if self._verb is Verb.SEND:
            return VerbsReceiver(end, size_bytes=size_bytes, verify=verify, fail=fail)
        depth = sweep.depth(size_bytes)
        return CardWritten(end, [None], size_bytes=size_bytes, depth=depth, verify=verify, fail=fail)


class _Line:
    """Messages one at a time, with what both ends of a round trip do."""

    def __init__(self, verb: Verb, end: QueuePairEnd, *, size_bytes: int, key: int = 0) -> None:
        """`key`: of what is read."""
        self.source = PayloadSource(size_bytes) if verb is Verb.READ else Shifted(size_bytes)
        self._reads, self._op, self._end, self._size_bytes = verb is Verb.READ, _OPS[verb], end, size_bytes
        self._key = key if self._reads else end.remote.rkey
        self._immediate = 0 if verb is Verb.WRITE else None
        self._memory = end.register(self.source.region, access=Access.LOCAL_WRITE)
        self._landing = np.zeros(1, np.uint64)
        self._requests: dict[int, SendRequest] = {}
        """SENDs by the offset of their payload."""
        self._used: int | None = None  # the receive request of the last message

    def exchange(self, offset: int) -> npt.NDArray[np.uint8]:
        """Send what the source has from there on, and return the answer. Raises PerfError, VerbsError."""
        if not self._reads:
            self.send(offset)
            return self.receive()
        end, size_bytes, there = self._end, self._size_bytes, np.array([offset], np.uint64)
        end.post(self._op, self._landing, length=size_bytes, memory=end.memory, remote_offsets=there, rkey=self._key)
        end.drain()
        return end.rows[0, :size_bytes]

    def send(self, offset: int) -> None:
        """Send what the source has from there on; then there is time to give back."""
        if self._op is SendOp.SEND:
            if (request := self._requests.get(offset)) is None:
                request = self._end.send_request(offset, length=self._size_bytes, memory=self._memory)
                self._requests[offset] = request
            self._end.post_one(request)
        else:
            self._end.post(
                self._op,
                np.array([offset], np.uint64),
                length=self._size_bytes,
                memory=self._memory,
                remote_offsets=self._landing,
                rkey=self._key,
                immediate=self._immediate,
            )
        self.give_back()

    def receive(self) -> npt.NDArray[np.uint8]:
        """Wait for a message, and return it; the next one may come to the same place. Raises PerfError."""
        message = self._end.received_one()
        if message.byte_len != self._size_bytes:
            raise PerfError(f"a message of {message.byte_len} bytes, where one of {self._size_bytes} is due")
        self._used = message.wr_id
        return self._end.rows[0, : self._size_bytes]

    def give_back(self) -> None:
        """Post the receive request of the last message again."""
        if self._used is not None:
            self._end.receive_one(self._used)
            self._used = None

    def close(self) -> None:
        """Give the memory back."""
        self._end.deregister(self._memory)
        self.source.close()


class VerbsRoundTrips(Measure):
    """A message and its answer, or a READ, one at a time."""

    def __init__(self, sweep: Sweep, verb: Verb, end: QueuePairEnd, *, size_bytes: int, key: int) -> None:
        self._sweep, self._verb, self._end, self._size_bytes = sweep, verb, end, size_bytes
        self._line = _Line(verb, end, size_bytes=size_bytes, key=key)

    async def warm_up(self) -> None:
        """Do nothing: the first of the round trips do not count."""

    async def measure(self) -> LatencyFigures:
        """Return the figures of half of each round trip; of a READ, of all of it."""
        times_ns, self.sent = await self._end.run(self._measure)
        if self._verb is Verb.READ:
            return LatencyFigures.of(times_ns, size_bytes=self._size_bytes)
        return latency_of(times_ns, size_bytes=self._size_bytes)

    def _measure(self) -> tuple[list[int], int]:
        measured = round_trips(self._line.exchange, self._line.source, sweep=self._sweep)
        self._line.give_back()
        self._end.drain()
        return measured

    def close(self) -> None:
        """Give the memory back."""
        self._line.close()


class VerbsSends(Series):
    """SENDs, as many at a time as the depth allows. They say which they are (rows.py)."""

    def __init__(self, sweep: Sweep, end: QueuePairEnd, *, size_bytes: int) -> None:
        super().__init__(sweep, size_bytes=size_bytes)
        self._end, self._rows = end, Rows(size_bytes)
        self._memory = end.register(self._rows.region, access=Access.LOCAL_WRITE)
        self._next = 0

    def _post(self, first: int, count: int) -> None:
        """Post requests. Raises PerfError, VerbsError."""
        offsets = _u64(self._rows.offsets(first, count))
        self._end.post(SendOp.SEND, offsets, length=self._size_bytes, memory=self._memory)

    async def _run(self, quota: MessageQuota) -> None:
        await self._end.run(lambda: self._pour(quota))

    def _pour(self, quota: MessageQuota) -> None:
        end = self._end
        while True:
            if count := quota.take(self._depth - end.open):
                self._post(self._next, count)
                self._next += count
            if not end.open:
                return
            self._progress.add(end.completed())

    def close(self) -> None:
        """Give the memory back."""
        self._end.deregister(self._memory)
        self._rows.close()


class VerbsAccesses(VerbsSends):
    """WRITEs or READs: request k has block k of the source, and a slot (memory.py). Verified ones go in rounds."""

    def __init__(self, sweep: Sweep, verb: Verb, end: QueuePairEnd, *, size_bytes: int, key: int, check: Check) -> None:
        Series.__init__(self, sweep, size_bytes=size_bytes)
        self._reads, self._op, self._end, self._key, self._next = verb is Verb.READ, _OPS[verb], end, key, 0
        self._source = PayloadSource(size_bytes)
        self._slots = MessageSlots(self._source, size_bytes=size_bytes, depth=self._depth, peers=1)
        self._compare_there = check
        if self._reads and sweep.verify:
            self._slots.prepare(0)
        region = self._slots.region if self._reads else self._source.region
        self._memory = end.register(region, access=Access.LOCAL_WRITE)

    def _post(self, first: int, count: int) -> None:
        numbers = np.arange(first, first + count)
        here, there = _u64(self._source.offset(numbers)), _u64(self._slots.slot_offset(numbers))
        if self._reads:
            here, there = there, here
        self._end.post(
            self._op, here, length=self._size_bytes, memory=self._memory, remote_offsets=there, rkey=self._key
        )

    async def _run(self, quota: MessageQuota) -> None:
        if self._sweep.verify:
            await self.run_rounds(quota, round_of=self._round, compare=self._compare)
        else:
            await super()._run(quota)

    async def _round(self, first: int, count: int) -> None:
        def post() -> None:
            self._post(first, count)
            self._end.drain()

        await self._end.run(post)

    async def _compare(self, first: int, count: int) -> None:
        if self._reads:
            self._slots.compare(first, count)
        else:
            await self._compare_there(first, count)

    def close(self) -> None:
        """Give the memory back."""
        self._end.deregister(self._memory)
        self._slots.close()
        self._source.close()


class _Waiting(Role):
    """A server's thread, which waits for messages."""

    def __init__(self, end: QueuePairEnd, *, size_bytes: int, fail: Fail) -> None:
        super().__init__(fail=fail)
        self._end, self._size_bytes, self._arrived = end, size_bytes, 0

    @property
    def moved(self) -> int:
        """Messages that have arrived."""
        return self._arrived

    async def finish(self, count: int) -> None:
        """Wait for all messages."""
        await arrived(self, lambda: self._arrived, count)


class VerbsResponder(_Waiting):
    """Answers each message by one of the same length and number; compares it before, as the next one comes there."""

    def __init__(self, verb: Verb, end: QueuePairEnd, *, size_bytes: int, verify: bool, fail: Fail) -> None:
        super().__init__(end, size_bytes=size_bytes, fail=fail)
        self._verify = verify
        self._line = _Line(verb, end, size_bytes=size_bytes)
        self._start(end.run(self._answer))

    def _answer(self) -> None:
        line = self._line
        while True:
            message, offset = line.receive(), line.source.offset(self._arrived)
            if self._verify and (wrong := line.source.difference(offset, message)) is not None:
                raise PerfError(f"byte {wrong} of message {self._arrived} is not what was sent")
            line.send(offset)
            self._arrived += 1

    async def close(self) -> None:
        """Answer no more."""
        await super().close()
        self._line.close()


class VerbsReceiver(_Waiting):
    """Receives messages, and compares and counts them if they are verified."""

    def __init__(self, end: QueuePairEnd, *, size_bytes: int, verify: bool, fail: Fail) -> None:
        super().__init__(end, size_bytes=size_bytes, fail=fail)
        self._rows = Rows(size_bytes)
        self._tally = Tally(self._rows) if verify else None
        self._start(end.run(self._receive))

    def _receive(self) -> None:
        end, size_bytes = self._end, self._size_bytes
        while True:
            found = end.received()
            if (byte_lengths(found) != size_bytes).any():
                raise PerfError(f"messages of {byte_lengths(found).tolist()} bytes instead of {size_bytes}")
            if self._tally is not None:
                self._tally.add(end.rows[found["wr_id"], :size_bytes])
            end.receive(found["wr_id"])
            self._arrived += len(found)

    async def finish(self, count: int) -> None:
        """Wait for all messages; each has to arrive once."""
        await super().finish(count)
        if self._tally is not None:
            self._tally.require_once(count)

    async def close(self) -> None:
        """Receive no more."""
        await super().close()
        self._rows.close()


class _ByTheCard(Role):
    """What the card does alone."""

    @property
    def moved(self) -> int:
        """This process does not see it: time is all that passes. A client that has gone has closed its connection."""
        return time.monotonic_ns()


class CardWritten(_ByTheCard, Written):
    """Slots that the client writes."""


class CardReadable(_ByTheCard, Readable):
    """The source, which the client reads."""


def _u64(offsets: npt.NDArray[np.int64]) -> U64Array:
    return offsets.view(np.uint64)
