"""The queue towards the network: fair between flows and short, by fq_codel (RFC 8290) with CoDel (RFC 8289) per flow.

Theory of operation.
1. A packet goes into the queue of its flow's bucket. Flows take turns by deficit round robin in bytes: each turn adds
   `quantum_bytes`, and a flow sends while its deficit is positive. So their shares of bytes are equal, whatever the
   sizes of their packets.
2. A flow that had nothing queued is new, and new flows go before old ones until they have sent a quantum. A flow that
   sends less than a quantum a round (SSH, DNS, the first packets of a connection) thus waits for other new flows only,
   and for the packet that is being sent. A new flow whose queue is empty becomes an old one for a round, if there are
   any: it cannot be new again and again, and starve them.
3. Each flow has a CoDel. When its packets have waited longer than `target_s` for `interval_s`, a packet is marked (ECN)
   or dropped at the head, and again at intervals that shrink with the square root of the count, until one waits less.
4. Over a limit, packets are dropped at the head of the flow with the most bytes: half of them, or `DROP_BATCH`, so that
   a flood costs little (RFC 8290, section 4.1). ECN does not save them. They raise the flow's count, as in Linux, so
   that its CoDel signals faster.

Super-packets. One of 64 KiB is one packet for CoDel, and is dropped or marked whole: its segments are of one flight,
for which TCP reduces its window once. CoDel drops nothing while no more than one packet of maximal size is left in the
queue, so that the link does not run dry. Here that size is `MTU_BYTES`, not a super-packet's. Linux had the largest
packet seen at first, which made CoDel useless on slow links, where a super-packet takes many times the target; it has
the MTU now. The link does not run dry for it: TCP's super-packets get smaller as its window shrinks. What is left is
counted in the flow's own queue, as RFC 8289 has it, where Linux counts all flows': so CoDel never drops the last packet
of a flow, whose loss TCP would notice only by a timeout.

The flow with the most bytes is at the top of a heap, whose entries are upper bounds: a flow gets a new entry, of twice
its bytes, when it outgrows the last. On overload the top entry is lowered to what its flow has, until the two agree.
So the heap costs one comparison a packet until there is an overload, and then O(log n), amortized.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

MTU_BYTES: Final = 1500
"""CoDel drops and marks nothing of a flow that has no more than this queued behind the packet (see above)."""

DROP_BATCH: Final = 64
"""Most packets dropped at once on overload, before the fattest flow is looked for again: RFC 8290's and Linux's."""

_MEMORY_INTERVALS: Final = (
    16  # CoDel goes on with the count of the last dropping state for so long (RFC 8289, section 5)
)
_MIN_HEAP: Final = 64  # outdated entries are sorted out of no shorter heap
_NO_BOUND: Final = -1  # less than any backlog: the flow has no entry in the heap


class _QueuedFlow(Generic[T]):
    """A bucket: its packets, its place in the round, and the state of its CoDel, named as in RFC 8289."""

    __slots__ = (
        "backlog_bytes", "bound_bytes", "count", "deficit_bytes", "drop_next_at", "dropping", "first_above_at",
        "has_turn", "index", "last_count", "packets",
    )  # fmt: skip

    def __init__(self, index: int) -> None:
        self.index = index
        self.packets: deque[tuple[T, int, float]] = deque()  # packet, size, queued at
        self.backlog_bytes = 0
        self.bound_bytes = _NO_BOUND  # of its valid entry in the heap, >= backlog_bytes while packets are queued
        self.has_turn = False  # is among the new or the old flows
        self.deficit_bytes = 0
        self.dropping = False
        self.first_above_at = math.inf  # inf: the last packet had waited less than the target
        self.drop_next_at = 0.0
        self.count = 0
        self.last_count = 0


class FairQueue(Generic[T]):
    """`push` what is to be sent, `pop` what is sent next. `now` never decreases.

    Arguments:
    - `limit_bytes`, `limit_packets`: the most that is queued, of all flows together.
    - `target_s`, `interval_s`: how long packets may wait all the time, and the time in which a sender reacts: RFC 8289
      has 5 and 100 ms.
    - `quantum_bytes`: what a flow may send in one turn. RFC 8290 has one MTU; a packet costs as many turns as it has
      quanta, while several flows are queued, so that a good part of a super-packet is better here.
    - `buckets`: flows are taken modulo this number. Each that is used keeps about 1 KB.
    - `mark`: sets a packet's CE codepoint, and returns whether it could (ECT). `drop`: takes a packet that is not sent.
      Neither may call the queue.
    """

    __slots__ = (
        "_buckets", "_drop", "_fattest", "_flows", "_interval_s", "_limit_bytes", "_limit_packets", "_mark", "_new",
        "_old", "_packets", "_quantum_bytes", "_target_s", "backlog_bytes",
    )  # fmt: skip

    def __init__(
        self,
        *,
        limit_bytes: int,
        limit_packets: int,
        target_s: float,
        interval_s: float,
        quantum_bytes: int,
        buckets: int,
        mark: Callable[[T], bool],
        drop: Callable[[T], None],
    ) -> None:
        self.backlog_bytes = 0
        self._limit_bytes = limit_bytes
        self._limit_packets = limit_packets
        self._target_s = target_s
        self._interval_s = interval_s
        self._quantum_bytes = quantum_bytes
        self._buckets = buckets
        self._mark = mark
        self._drop = drop
        self._packets = 0
        self._flows: dict[int, _QueuedFlow[T]] = {}
        self._new: deque[_QueuedFlow[T]] = deque()
        self._old: deque[_QueuedFlow[T]] = deque()
        self._fattest: list[tuple[int, int]] = []  # a heap: minus the bound, bucket; see the module's text

    def __len__(self) -> int:
        return self._packets

    def push(self, item: T, *, flow: int, size_bytes: int, now: float) -> None:
        """Queue a packet. Over a limit packets of the fattest flow are dropped, which may be this one."""
        index = flow % self._buckets
        queue = self._flows.get(index)
        if queue is None:
            queue = self._flows[index] = _QueuedFlow[T](index)
        queue.packets.append((item, size_bytes, now))
        queue.backlog_bytes += size_bytes
        self.backlog_bytes += size_bytes
        self._packets += 1
        if not queue.has_turn:
            queue.has_turn = True
            queue.deficit_bytes = self._quantum_bytes
            self._new.append(queue)
        if queue.backlog_bytes > queue.bound_bytes:
            self._raise_bound(queue)
        if self.backlog_bytes > self._limit_bytes or self._packets > self._limit_packets:
            self._drop_from_fattest()

    def pop(self, *, now: float) -> T | None:
        """Return the packet to be sent next, or None when nothing is queued: CoDel may have dropped the last."""
        while self._new or self._old:
            turns = self._new or self._old
            flow = turns[0]
            if flow.deficit_bytes <= 0:
                self._end_turn(flow)
                continue
            packet = self._dequeue(flow, now)
            if packet is not None:
                flow.deficit_bytes -= packet[1]
                return packet[0]
            turns.popleft()
            if turns is self._new and self._old:
                self._old.append(flow)
            else:
                flow.has_turn = False
        return None

    def flush(self) -> None:
        """Drop all that is queued, as its destination is gone. The state of the flows' CoDels is forgotten, too."""
        flows = list(self._flows.values())
        for container in (self._flows, self._new, self._old, self._fattest):
            container.clear()
        self.backlog_bytes = self._packets = 0
        for flow in flows:
            for item, _, _ in flow.packets:
                self._drop(item)

    def _end_turn(self, flow: _QueuedFlow[T]) -> None:
        """Move the first flow behind the old ones. One that is alone gets all the turns at once that it needs."""
        if self._new:
            self._new.popleft()
        else:
            self._old.popleft()
        quantum = self._quantum_bytes
        turns = 1 if self._new or self._old else -flow.deficit_bytes // quantum + 1
        flow.deficit_bytes += turns * quantum
        self._old.append(flow)

    def _take(self, flow: _QueuedFlow[T]) -> tuple[T, int, float]:
        packet = flow.packets.popleft()
        flow.backlog_bytes -= packet[1]
        self.backlog_bytes -= packet[1]
        self._packets -= 1
        return packet

    # -- CoDel (RFC 8289, section 5) --------------------------------------------------------------------------------

    def _dequeue(self, flow: _QueuedFlow[T], now: float) -> tuple[T, int, float] | None:
        """The RFC's deque(): return the flow's next packet, marked if that is due, or with those before it dropped."""
        packet = self._next(flow, now)
        if now < flow.first_above_at:
            flow.dropping = False
        elif not flow.dropping:
            packet = self._enter_dropping(flow, packet, now)
        else:
            while packet is not None and flow.dropping and now >= flow.drop_next_at:
                flow.count += 1
                if self._marked(packet):
                    flow.drop_next_at += self._interval_s / math.sqrt(flow.count)
                    break
                packet = self._next(flow, now)
                if now < flow.first_above_at:
                    flow.dropping = False
                else:
                    flow.drop_next_at += self._interval_s / math.sqrt(flow.count)
        return packet

    def _next(self, flow: _QueuedFlow[T], now: float) -> tuple[T, int, float] | None:
        """The RFC's dodequeue(). The packet may be dropped if `now` is at least `first_above_at` afterwards."""
        if not flow.packets:
            flow.first_above_at = math.inf
            return None
        packet = self._take(flow)
        if now - packet[2] < self._target_s or flow.backlog_bytes <= MTU_BYTES:
            flow.first_above_at = math.inf
        elif flow.first_above_at == math.inf:
            flow.first_above_at = now + self._interval_s
        return packet

    def _enter_dropping(
        self, flow: _QueuedFlow[T], packet: tuple[T, int, float] | None, now: float
    ) -> tuple[T, int, float] | None:
        """Signal for the first time, with the count of the last dropping state if that was not long ago."""
        if packet is not None and not self._marked(packet):
            packet = self._next(flow, now)
        flow.dropping = True
        since_last = flow.count - flow.last_count
        recent = now - flow.drop_next_at < _MEMORY_INTERVALS * self._interval_s
        flow.count = since_last if since_last > 1 and recent else 1
        flow.last_count = flow.count
        flow.drop_next_at = now + self._interval_s / math.sqrt(flow.count)
        return packet

    def _marked(self, packet: tuple[T, int, float]) -> bool:
        """Whether the packet could be marked; otherwise it is dropped."""
        if self._mark(packet[0]):
            return True
        self._drop(packet[0])
        return False

    # -- overload ---------------------------------------------------------------------------------------------------

    def _drop_from_fattest(self) -> None:
        while self.backlog_bytes > self._limit_bytes or self._packets > self._limit_packets:
            flow = self._fattest_flow()
            enough_bytes = flow.backlog_bytes - flow.backlog_bytes // 2
            for _ in range(min(DROP_BATCH, len(flow.packets))):
                packet = self._take(flow)
                flow.count += 1
                self._drop(packet[0])
                if flow.backlog_bytes <= enough_bytes:
                    break

    def _fattest_flow(self) -> _QueuedFlow[T]:
        """Return the flow with the most bytes; something must be queued."""
        heap = self._fattest
        while True:
            bound, index = heap[0]
            flow = self._flows[index]
            if flow.bound_bytes != -bound:  # it has another entry
                heapq.heappop(heap)
            elif not flow.packets:
                heapq.heappop(heap)
                flow.bound_bytes = _NO_BOUND
            elif flow.backlog_bytes == flow.bound_bytes:
                return flow
            else:
                flow.bound_bytes = flow.backlog_bytes
                heapq.heapreplace(heap, (-flow.bound_bytes, index))

    def _raise_bound(self, flow: _QueuedFlow[T]) -> None:
        flow.bound_bytes = 2 * flow.backlog_bytes
        if len(self._fattest) < 2 * len(self._flows) + _MIN_HEAP:
            heapq.heappush(self._fattest, (-flow.bound_bytes, flow.index))
            return
        self._fattest = [(-f.bound_bytes, f.index) for f in self._flows.values() if f.bound_bytes != _NO_BOUND]
        heapq.heapify(self._fattest)
