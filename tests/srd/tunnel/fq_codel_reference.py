"""fq_codel as its RFCs have it, written for comparison: lists, scans, and their names for everything."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

MTU = 1500
BATCH = 64


@dataclass(frozen=True, eq=False)
class Packet:
    flow: int
    size_bytes: int
    ect: bool = False
    sent_at: float = 0.0


@dataclass
class ReferenceCodel:
    """RFC 8289, section 5: `deque` and `dodequeue`, with ECN as RFC 8290 adds it: what can be marked is not dropped."""

    target: float
    interval: float
    drop: Callable[[Packet], None]
    queue: list[tuple[Packet, float]] = field(default_factory=list)
    marks: list[Packet] = field(default_factory=list)
    first_above_time: float = 0.0
    drop_next: float = 0.0
    count: int = 0
    lastcount: int = 0
    dropping: bool = False

    def bytes(self) -> int:
        return sum(packet.size_bytes for packet, _ in self.queue)

    def control_law(self, t: float) -> float:
        return t + self.interval / math.sqrt(self.count)

    def dodequeue(self, now: float) -> tuple[Packet | None, bool]:
        if not self.queue:
            self.first_above_time = 0.0
            return None, False
        packet, tstamp = self.queue.pop(0)
        ok_to_drop = False
        if now - tstamp < self.target or self.bytes() <= MTU:
            self.first_above_time = 0.0
        elif self.first_above_time == 0.0:
            self.first_above_time = now + self.interval
        elif now >= self.first_above_time:
            ok_to_drop = True
        return packet, ok_to_drop

    def mark(self, packet: Packet) -> bool:
        if packet.ect:
            self.marks.append(packet)
        return packet.ect

    def deque(self, now: float) -> Packet | None:
        packet, ok_to_drop = self.dodequeue(now)
        if self.dropping:
            if not ok_to_drop:
                self.dropping = False
            while now >= self.drop_next and self.dropping:
                assert packet is not None
                self.count += 1
                if self.mark(packet):
                    self.drop_next = self.control_law(self.drop_next)
                    return packet
                self.drop(packet)
                packet, ok_to_drop = self.dodequeue(now)
                if not ok_to_drop:
                    self.dropping = False
                else:
                    self.drop_next = self.control_law(self.drop_next)
        elif ok_to_drop:
            assert packet is not None
            if not self.mark(packet):
                self.drop(packet)
                packet, _ = self.dodequeue(now)
            self.dropping = True
            delta = self.count - self.lastcount
            self.count = 1
            if delta > 1 and now - self.drop_next < 16 * self.interval:
                self.count = delta
            self.drop_next = self.control_law(now)
            self.lastcount = self.count
        return packet


@dataclass
class ReferenceFqCodel:
    """RFC 8290, section 4: the queues by bucket, and the lists of buckets that have a turn."""

    limit_bytes: int
    limit_packets: int
    quantum: int
    queues: list[ReferenceCodel]
    drop: Callable[[Packet], None]
    new_flows: list[int] = field(default_factory=list)
    old_flows: list[int] = field(default_factory=list)
    credits: dict[int, int] = field(default_factory=dict)

    def backlog_bytes(self) -> int:
        return sum(queue.bytes() for queue in self.queues)

    def packets(self) -> int:
        return sum(len(queue.queue) for queue in self.queues)

    def enqueue(self, packet: Packet, now: float) -> None:
        index = packet.flow % len(self.queues)
        self.queues[index].queue.append((packet, now))
        if index not in self.new_flows + self.old_flows:
            self.new_flows.append(index)
            self.credits[index] = self.quantum
        while self.backlog_bytes() > self.limit_bytes or self.packets() > self.limit_packets:
            fattest = max(self.queues, key=ReferenceCodel.bytes)  # the first of several
            backlog = fattest.bytes()
            for _ in range(BATCH):
                fattest.count += 1
                self.drop(fattest.queue.pop(0)[0])
                if backlog - fattest.bytes() >= backlog // 2 or not fattest.queue:
                    break

    def dequeue(self, now: float) -> Packet | None:
        while turns := self.new_flows or self.old_flows:
            index = turns[0]
            if self.credits[index] <= 0:
                self.credits[index] += self.quantum
                self.old_flows.append(turns.pop(0))
                continue
            packet = self.queues[index].deque(now)
            if packet is not None:
                self.credits[index] -= packet.size_bytes
                return packet
            turns.pop(0)
            if turns is self.new_flows and self.old_flows:
                self.old_flows.append(index)
        return None
