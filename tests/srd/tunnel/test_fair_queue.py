"""The queue towards the network: beside a reference of its RFCs, its shares and delays, and what senders make of it."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from srd.tunnel import fair_queue
from srd.tunnel.fair_queue import DROP_BATCH, MTU_BYTES, FairQueue
from tests.srd.tunnel.fq_codel_reference import Packet, ReferenceCodel, ReferenceFqCodel

MS = 0.001
TARGET_S = 5 * MS
INTERVAL_S = 100 * MS
SUPER_BYTES = 65_535
QUANTUM_BYTES = 16_384


class Queue:
    """A `FairQueue`, and what it dropped and marked."""

    def __init__(self, *, on_drop: Callable[[Packet], None] | None = None, **changed: Any) -> None:
        self.dropped: list[Packet] = []
        self.marked: set[Packet] = set()
        self._on_drop = on_drop
        arguments = {
            "limit_bytes": 1 << 30,
            "limit_packets": 1 << 30,
            "target_s": TARGET_S,
            "interval_s": INTERVAL_S,
            "quantum_bytes": QUANTUM_BYTES,
            "buckets": 1024,
        }
        self.fair: FairQueue[Packet] = FairQueue(**{**arguments, **changed}, mark=self._mark, drop=self._drop)

    def push(self, packet: Packet, *, now: float = 0.0) -> Packet:
        self.fair.push(packet, flow=packet.flow, size_bytes=packet.size_bytes, now=now)
        return packet

    def pop(self, *, now: float = 0.0) -> Packet | None:
        return self.fair.pop(now=now)

    def drain(self, *, now: float = 0.0) -> Iterator[Packet]:
        while (packet := self.fair.pop(now=now)) is not None:
            yield packet

    def _mark(self, packet: Packet) -> bool:
        if packet.ect:
            self.marked.add(packet)
        return packet.ect

    def _drop(self, packet: Packet) -> None:
        self.dropped.append(packet)
        if self._on_drop is not None:
            self._on_drop(packet)


# -- CoDel -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ect", [False, True])
def test_codel__signals_at_the_times_of_the_control_law(*, ect: bool) -> None:
    """By hand: all were queued at 0, one leaves each second. The target is 5 s, so the first signal is due at 105 s.

    The next is one interval later, and then 100 / sqrt(2), 100 / sqrt(3) ... later: 275.7, 333.4, 383.4, 428.2, 469.0.
    """
    queue = Queue(target_s=5.0, interval_s=100.0)
    for _ in range(1000):
        queue.push(Packet(0, MTU_BYTES, ect=ect))
    times: list[int] = []
    for now in range(480):
        queue.pop(now=now)
        times += [now] * (len(queue.dropped) + len(queue.marked) - len(times))
    assert times == [105, 205, 276, 334, 384, 429, 469]
    assert len(queue.dropped) == queue.fair.dropped == (0 if ect else 7)
    assert len(queue.marked) == queue.fair.marked == (7 if ect else 0)


@pytest.mark.parametrize(("gap_s", "times"), [(1500, [105, 146, 184]), (1700, [105, 205])])
def test_codel__a_queue_that_stands_again_soon_is_signalled_at_the_last_rate(gap_s: int, times: list[int]) -> None:
    """The rate is remembered for 16 intervals: the count was 7, and 6 more than at the last start."""
    queue = Queue(target_s=5.0, interval_s=100.0)
    for _ in range(1000):
        queue.push(Packet(0, MTU_BYTES))
    for now in range(470):
        queue.pop(now=now)
    assert sum(1 for _ in queue.drain(now=470)) == 1000 - 470 - 7
    start = 470 + gap_s
    for _ in range(1000):
        queue.push(Packet(0, MTU_BYTES), now=start)
    queue.dropped.clear()
    dropped_at: list[int] = []
    for now in range(210):
        queue.pop(now=start + now)
        dropped_at += [now] * (len(queue.dropped) - len(dropped_at))
    assert dropped_at == times


# -- beside the reference ----------------------------------------------------------------------------------------------


class FairQueueMachine(RuleBasedStateMachine):
    """The same packets, drops, marks and counters as the reference, whatever comes in whatever order."""

    @initialize(
        limit_bytes=st.sampled_from([5_000, 200_000, 1 << 30]),
        limit_packets=st.sampled_from([3, 100, 1 << 30]),
        quantum_bytes=st.sampled_from([100, 1514, 65_536]),
        buckets=st.sampled_from([1, 3]),
    )
    def create(self, limit_bytes: int, limit_packets: int, quantum_bytes: int, buckets: int) -> None:
        self.now = 1.0
        self.pushed = self.popped = self.flushed = 0
        self.queue = Queue(
            limit_bytes=limit_bytes, limit_packets=limit_packets, quantum_bytes=quantum_bytes, buckets=buckets
        )
        self.dropped: list[Packet] = []
        queues = [ReferenceCodel(TARGET_S, INTERVAL_S, drop=self.dropped.append) for _ in range(buckets)]
        self.reference = ReferenceFqCodel(limit_bytes, limit_packets, quantum_bytes, queues, drop=self.dropped.append)

    @rule(
        flow=st.integers(0, 4),
        size_bytes=st.sampled_from([1, 100, 1500, 9000, 65_535]),
        ect=st.booleans(),
        packets=st.integers(1, 40),
    )
    def push(self, *, flow: int, size_bytes: int, ect: bool, packets: int) -> None:
        for _ in range(packets):
            packet = self.queue.push(Packet(flow, size_bytes, ect=ect), now=self.now)
            self.reference.enqueue(packet, self.now)
            self.pushed += 1

    @rule(packets=st.integers(1, 20), apart_s=st.sampled_from([0.0, 1 * MS, 20 * MS, 100 * MS]))
    def pop(self, packets: int, apart_s: float) -> None:
        for _ in range(packets):
            packet = self.queue.pop(now=self.now)
            assert packet is self.reference.dequeue(self.now)
            self.popped += packet is not None
            self.now += apart_s

    @rule(elapsed_s=st.sampled_from([1 * MS, 5 * MS, 100 * MS, 2.0]))
    def wait(self, elapsed_s: float) -> None:
        self.now += elapsed_s

    @invariant()
    def same(self) -> None:
        fair = self.queue.fair
        assert self.queue.dropped == self.dropped
        assert self.queue.marked == {packet for queue in self.reference.queues for packet in queue.marks}
        assert (fair.backlog_bytes, len(fair)) == (self.reference.backlog_bytes(), self.reference.packets())
        assert fair.backlog_bytes <= self.reference.limit_bytes
        assert len(fair) <= self.reference.limit_packets
        assert self.pushed == self.popped + fair.dropped + len(fair), "each exactly once"
        assert (fair.dropped, fair.marked) == (len(self.queue.dropped), len(self.queue.marked))
        assert len(fair._fattest) <= 2 * len(fair._flows) + 64
        assert all(flow.backlog_bytes <= flow.bound_bytes for flow in fair._flows.values() if flow.packets)

    def teardown(self) -> None:
        if hasattr(self, "queue"):
            left = len(self.queue.fair)
            before = len(self.queue.dropped)
            self.queue.fair.flush()
            assert len(self.queue.dropped) == before + left
            assert self.queue.pop(now=self.now) is None
            assert len(set(self.queue.dropped)) == len(self.queue.dropped)


TestFairQueue = FairQueueMachine.TestCase
TestFairQueue.settings = settings(max_examples=100, stateful_step_count=30)


# -- overload ----------------------------------------------------------------------------------------------------------


def test_overload__a_batch_at_most() -> None:
    queue = Queue(limit_packets=1000)
    for _ in range(1001):
        queue.push(Packet(1, 1500))
    assert len(queue.dropped) == DROP_BATCH


def test_overload__costs_little_with_many_flows() -> None:
    """The fattest flow is found among 1,024 by a few steps of the heap, not by looking at all of them."""
    looked_at = 0

    class Counted(dict[int, Any]):
        def __getitem__(self, key: int) -> Any:
            nonlocal looked_at
            looked_at += 1
            return super().__getitem__(key)

    queue = Queue(limit_packets=2000)
    queue.fair._flows = Counted()
    randomness = random.Random(8290)
    pushes = 20_000
    for _ in range(pushes):
        queue.push(Packet(randomness.randrange(1 << 16), randomness.choice([100, 1500, SUPER_BYTES])))
    assert queue.fair.overflows >= pushes - 2000
    assert looked_at < 10 * pushes


def test_memory__depends_on_what_is_queued() -> None:
    queue = Queue(limit_packets=2000)
    packet = Packet(0, 1)
    randomness = random.Random(8290)

    def traffic(pushes: int) -> int:
        for _ in range(pushes):
            queue.fair.push(packet, flow=randomness.randrange(1 << 16), size_bytes=randomness.randrange(9000), now=0.0)
            queue.dropped.clear()
        for _ in range(2001):
            queue.pop()
        # Not what other threads of this process have allocated. What compiled code allocates is its caller's.
        here = [tracemalloc.Filter(inclusive=True, filename_pattern=name) for name in (__file__, fair_queue.__file__)]
        return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(here).traces)

    tracemalloc.start()
    try:
        kept = [traffic(5_000) for _ in range(4)]
    finally:
        tracemalloc.stop()
    assert len(queue.fair) == 0
    assert max(kept) < 1024 * 1200 + 200_000
    assert kept[-1] < kept[0] + 100_000
