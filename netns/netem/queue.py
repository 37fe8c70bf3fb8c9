"""netem's algorithm as a pure queue: no clock, no I/O, no randomness except its own seeded generator.

Source: Linux net/sched/sch_netem.c (6.18), netem_enqueue(), tfifo_enqueue(), netem_dequeue(), packet_time_ns().

Theory of operation. `enqueue` decides on a packet and its departure at once, in the kernel's order, because a seed is
reproducible only with the same order of draws:

1. Duplicate: one draw if its probability is not 0. A copy makes two.
2. Loss: by its model (loss_models.py). It removes one packet; of a duplicated packet one is left. With `ecn` a packet
   that can be marked is marked instead.
3. Corrupt: one draw if its probability is not 0; one bit flips. The copy was made before and is intact.
4. Limit: a packet is dropped, with its copy, if `limit_packets` are already held; the delay line counts, too.
5. The copy goes through 2 to 7 by itself, before the packet.
6. Reorder: one draw once `gap` - 1 packets have been delayed; a packet that is reordered leaves at once.
7. Delay: one draw if the jitter is not 0, in integer nanoseconds: delay + draw % (2 * jitter) - jitter, or by a table.
   Without a rate the departure is now + delay. With one, max(last departure held, now + delay) + time on the wire,
   so that departures never go back and jitter never reorders. A jitter larger than the delay may give a departure
   before now: then the packet leaves at once.

Held packets are in a FIFO as long as departures increase; those that overtake are in a heap beside it (the kernel's
list and red-black tree). The last entry of the FIFO is always the latest of all departures, so the heap is empty when
the FIFO is. Of equal departures the FIFO's leaves first. With slots (slots.py) packets leave later than that.
Reordered packets, which slots do not delay, are in a queue of their own.

Where the kernel uses its unseeded generator (the start of a correlation, the bit that flips, the opening of a uniform
slot), a second seeded sequence is used here, so that a seed repeats the whole run.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from netns.netem.distributions import scaled, table
from netns.netem.loss_models import chance, correlated, loss, threshold
from netns.netem.mahimahi import DeliveryOpportunities, read_trace
from netns.netem.packet_ops import Opaque
from netns.netem.prandom import U64_MAX, draws
from netns.netem.slots import Slots

if TYPE_CHECKING:
    from netns.netem.packet_ops import PacketOps
    from netns.netem.shape import Shape

P = TypeVar("P")

NS_PER_S: Final = 1_000_000_000
COUNTERS: Final = ("delayed", "dropped", "overlimit", "duplicated", "corrupted", "reordered", "ecn_marked")


class Netem(Generic[P]):
    """One direction of a shaped link: packets of any type are enqueued with their length, and dequeued when due.

    The shape's own seed overrides `seed`; `ops` copies, corrupts and marks packets. Counters, in packets: `delayed`
    were accepted (netem's term; those that skip the delay, too), `dropped` were lost by draw, `overlimit` found the
    queue full; `duplicated`, `corrupted`, `reordered` and `ecn_marked` are as named.
    """

    __slots__ = (
        "_ahead",
        "_bytes_per_s",
        "_corrupt",
        "_delay_ns",
        "_delay_u32",
        "_duplicate",
        "_fifo",
        "_gap",
        "_impaired",
        "_jitter_ns",
        "_limit",
        "_loss",
        "_lost",
        "_mahimahi",
        "_next_u32",
        "_ops",
        "_order",
        "_overtakers",
        "_reorder",
        "_since_reordered",
        "_slots",
        "_spare_u32",
        "_table",
        "_wire_bytes",
        "corrupted",
        "delayed",
        "dropped",
        "duplicated",
        "ecn_marked",
        "overlimit",
        "reordered",
        "shape",
    )

    def __init__(self, shape: Shape, *, seed: int, ops: PacketOps[P] | None = None) -> None:
        self._fifo: deque[tuple[int, P]] = deque()
        self._overtakers: list[tuple[int, int, P]] = []
        self._ahead: deque[tuple[int, P]] = deque()
        self._order = 0
        self._ops: PacketOps[P] = ops or Opaque()
        self.delayed = 0
        self.dropped = 0
        self.overlimit = 0
        self.duplicated = 0
        self.corrupted = 0
        self.reordered = 0
        self.ecn_marked = 0
        self._seed(seed)
        self.reshape(shape)

    def reshape(self, shape: Shape) -> None:
        """Change the shape. Held packets keep their departure; the draws continue unless the shape has a seed.

        Raises ShapeError, and changes nothing, if a file in the shape cannot be read.
        """
        delays = table(shape.distribution)
        opportunities = None if shape.trace is None else DeliveryOpportunities(read_trace(Path(shape.trace)))
        if shape.seed is not None:
            self._seed(shape.seed)
        next_u32, spare_u32 = self._next_u32, self._spare_u32
        slots = None if shape.slot is None else Slots(shape.slot, next_u32=next_u32, spare_u32=spare_u32)
        self.shape = shape
        self._table, self._mahimahi, self._slots = delays, opportunities, slots
        self._delay_ns = round(shape.delay_us * 1000)
        self._jitter_ns = round(shape.jitter_us * 1000)
        self._delay_u32 = correlated(next_u32, correlation_percent=shape.delay_correlation_percent, spare_u32=spare_u32)
        self._bytes_per_s = shape.rate_bps // 8
        framed = shape.rate_overhead_bytes or shape.cell_bytes
        self._wire_bytes = self._framed if framed else None
        self._limit = shape.limit_packets
        self._gap = shape.reorder_gap
        self._since_reordered = 0
        self._lost = loss(shape, next_u32=next_u32, spare_u32=spare_u32)
        self._duplicate, self._corrupt, self._reorder = (
            chance(next_u32, percent=percent, correlation_percent=correlation_percent, spare_u32=spare_u32)
            for percent, correlation_percent in (
                (shape.duplicate_percent, shape.duplicate_correlation_percent),
                (shape.corrupt_percent, shape.corrupt_correlation_percent),
                (shape.reorder_chance_percent, shape.reorder_correlation_percent),
            )
        )
        independent = shape.loss_model is None and not shape.loss_correlation_percent
        self._loss = threshold(shape.loss_percent) if independent else 0
        self._impaired = bool(
            self._duplicate
            or self._corrupt
            or self._reorder
            or slots
            or shape.ecn
            or (self._lost and not independent)
            or self._ahead
        )

    def _seed(self, seed: int) -> None:
        self._next_u32 = draws(seed).__next__
        self._spare_u32 = draws(seed ^ U64_MAX).__next__

    def __len__(self) -> int:
        """Return the number of packets held."""
        return len(self._fifo) + len(self._overtakers) + len(self._ahead)

    @property
    def next_at_ns(self) -> int | None:
        """When the next packet is due, or `dequeue` must be called for a slot; None if no packet is held."""
        if self._ahead:
            return self._ahead[0][0]
        fifo, overtakers = self._fifo, self._overtakers
        if not fifo:
            return None
        at = fifo[0][0]
        if overtakers and overtakers[0][0] < at:
            at = overtakers[0][0]
        return at if self._slots is None else max(at, self._slots.opens_at_ns)

    def counters(self) -> dict[str, int]:
        """Return all counters, by name."""
        return {name: getattr(self, name) for name in COUNTERS}

    def wait_ns(self, now_ns: int) -> int:
        """Return how long a packet that enters now waits for those before it, beyond its delay and time on the wire.

        The rate times this is the queue, without the delay line. 0 without a rate.
        """
        if not self.shape.limited or not self._fifo:
            return 0
        return max(self._fifo[-1][0] - now_ns - self._delay_ns, 0)

    def enqueue(self, now_ns: int, *, packet: P, length_bytes: int) -> int | None:
        """Enqueue `packet` at `now_ns`; return when it, or a copy of it, is first due, or None if it was dropped.

        `length_bytes` is the packet's size on the wire, Ethernet header included. `now_ns` never goes back.
        """
        if self._impaired:
            return self._enqueue_impaired(now_ns, packet, length_bytes, single=False)
        if self._loss and self._loss >= self._next_u32():
            self.dropped += 1
            return None
        if len(self._fifo) + len(self._overtakers) >= self._limit:
            self.overlimit += 1
            return None
        return self._delay(now_ns, packet, length_bytes)

    def _enqueue_impaired(self, now_ns: int, packet: P, length_bytes: int, *, single: bool) -> int | None:
        """Apply all of netem's steps; `single` for a copy, which must not be duplicated again."""
        copies = 1
        if self._duplicate is not None and not single and self._duplicate():
            copies = 2
        if self._lost is not None and self._lost():
            marked = self._ops.marked(packet) if self.shape.ecn else None
            if marked is None:
                copies -= 1
            else:
                packet = marked
                self.ecn_marked += 1
        if not copies:
            self.dropped += 1
            return None
        clean = packet
        if self._corrupt is not None and self._corrupt():
            packet = self._ops.corrupted(packet, draw=self._spare_u32)
            self.corrupted += 1
        if len(self) >= self._limit:
            self.overlimit += 1
            return None
        first_at = None
        if copies > 1:
            self.duplicated += 1
            copy = self._ops.copied(clean)
            first_at = self._enqueue_impaired(now_ns, copy, length_bytes, single=True)
        at = self._reordered_or_delayed(now_ns, packet, length_bytes)
        return at if first_at is None else min(at, first_at)

    def _reordered_or_delayed(self, now_ns: int, packet: P, length_bytes: int) -> int:
        if self._reorder is None or self._since_reordered < self._gap - 1 or not self._reorder():
            self._since_reordered += 1
            at = self._delay(now_ns, packet, length_bytes)
            if self._slots is not None:
                self._slots.look(now_ns, due_at_ns=self._head_at_ns())
            return at
        self._since_reordered = 0
        self.reordered += 1
        self.delayed += 1
        self._ahead.append((now_ns, packet))
        return now_ns

    def _delay(self, now_ns: int, packet: P, length_bytes: int) -> int:
        """Put a packet into the delay line; return when it is due."""
        fifo = self._fifo
        at = now_ns + self._delay_ns
        if self._jitter_ns:
            if self._table is None:
                at += self._delay_u32() % (2 * self._jitter_ns) - self._jitter_ns
            else:
                at += scaled(self._table[self._delay_u32() % len(self._table)], jitter_ns=self._jitter_ns)
        if self._bytes_per_s:
            if fifo and fifo[-1][0] > at:
                at = fifo[-1][0]
            if self._wire_bytes is not None:
                length_bytes = self._wire_bytes(length_bytes)
            at += length_bytes * NS_PER_S // self._bytes_per_s
        elif self._mahimahi is not None:
            ready_at = max(at, fifo[-1][0]) if fifo else at
            at = self._mahimahi.serve(ready_at, length_bytes=length_bytes)
        if at < now_ns:  # noqa: PLR1730 - max() is slow on a path taken per packet
            at = now_ns
        if fifo and at < fifo[-1][0]:
            self._order += 1
            heappush(self._overtakers, (at, self._order, packet))
        else:
            fifo.append((at, packet))
        self.delayed += 1
        return at

    def _framed(self, length_bytes: int) -> int:
        """Return a packet's size on the wire with overhead, in whole cells if there are cells."""
        shape = self.shape
        length_bytes = max(length_bytes + shape.rate_overhead_bytes, 0)
        if not shape.cell_bytes:
            return length_bytes
        return -(-length_bytes // shape.cell_bytes) * (shape.cell_bytes + shape.cell_overhead_bytes)

    def dequeue(self, now_ns: int) -> tuple[int, P] | None:
        """Remove and return the next packet due at `now_ns`, with its departure in ns; None if none is due."""
        if self._impaired:
            return self._dequeue_impaired(now_ns)
        fifo = self._fifo
        if self._overtakers and self._overtakers[0][0] < fifo[0][0]:
            if self._overtakers[0][0] > now_ns:
                return None
            at, _, packet = heappop(self._overtakers)
            return at, packet
        if fifo and fifo[0][0] <= now_ns:
            return fifo.popleft()
        return None

    def _dequeue_impaired(self, now_ns: int) -> tuple[int, P] | None:
        """Dequeue reordered packets first, others when the slot opens; check slots when the kernel's timer would."""
        if self._ahead:
            return self._ahead.popleft() if self._ahead[0][0] <= now_ns else None
        slots = self._slots
        while self._fifo:
            due_at = self._head_at_ns()
            at = due_at if slots is None else max(due_at, slots.opens_at_ns)
            if at > now_ns:
                return None
            if slots is not None and slots.opens_at_ns < due_at:
                slots.look(at, due_at_ns=due_at)
                continue
            packet = self._pop_head()
            if slots is not None:
                slots.passed(at, length_bytes=self._ops.length_bytes(packet))
                if self._fifo:
                    slots.look(at, due_at_ns=self._head_at_ns())
            return at, packet
        return None

    def _head_at_ns(self) -> int:
        fifo, overtakers = self._fifo, self._overtakers
        return overtakers[0][0] if overtakers and overtakers[0][0] < fifo[0][0] else fifo[0][0]

    def _pop_head(self) -> P:
        if self._overtakers and self._overtakers[0][0] < self._fifo[0][0]:
            return heappop(self._overtakers)[2]
        return self._fifo.popleft()[1]
