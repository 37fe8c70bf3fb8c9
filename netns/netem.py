"""netem's algorithm as a pure queue: no clock, no I/O, no randomness but its own seeded generator.

Source: Linux net/sched/sch_netem.c (6.18), netem_enqueue(), tfifo_enqueue(), netem_peek(), packet_time_ns().

Theory of operation. `enqueue` decides a packet's fate and its departure at once, in the kernel's order,
because the order of the draws is what makes a seed reproducible:

1. Loss: one draw if the loss is not 0; lost if `threshold >= draw`, threshold = rint(fraction * (2**32 - 1)).
2. Limit: a packet that finds `limit_packets` held already is dropped; the delay line counts too.
3. Delay: one draw if the jitter is not 0; delay + draw % (2 * jitter) - jitter, in integer nanoseconds.
4. Departure: without a rate now + delay. With one, max(last departure held, now + delay) + time on the wire,
   so that departures never go back and jitter never reorders. A jitter larger than the delay may ask for a
   departure before now: the packet leaves at once.

Held packets lie in a FIFO as long as departures grow; those that overtake lie in a heap beside it (the
kernel's list and red-black tree). The last entry of the FIFO is always the latest of all departures, so the
heap is empty when the FIFO is. Of equal departures the FIFO's leaves first.

The draws of impairments to come have their places: duplication before loss, corruption between loss and
limit, reordering before delay.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Generic, TypeVar

from netns.prandom import U32_MAX, draws

if TYPE_CHECKING:
    from netns.shape import Shape

P = TypeVar("P")

NS_PER_S = 1_000_000_000


class Netem(Generic[P]):
    """One direction of a shaped link: packets of any type go in with their length, and come out when due.

    `seed` holds unless the shape brings its own. Counters: `delayed` packets were taken, `dropped` were lost
    by draw, `overlimit` found the queue full.
    """

    __slots__ = (
        "_bytes_per_s",
        "_delay_ns",
        "_fifo",
        "_jitter_ns",
        "_limit",
        "_loss",
        "_next_u32",
        "_order",
        "_overtakers",
        "delayed",
        "dropped",
        "overlimit",
        "shape",
    )

    def __init__(self, shape: Shape, *, seed: int) -> None:
        self._fifo: deque[tuple[int, P]] = deque()
        self._overtakers: list[tuple[int, int, P]] = []
        self._order = 0
        self.delayed = 0
        self.dropped = 0
        self.overlimit = 0
        self._next_u32 = draws(seed).__next__
        self.reshape(shape)

    def reshape(self, shape: Shape) -> None:
        """Change the shape. What is held keeps its departure; the draws go on unless the shape has a seed."""
        self.shape = shape
        self._delay_ns = round(shape.delay_us * 1000)
        self._jitter_ns = round(shape.jitter_us * 1000)
        self._loss = round(shape.loss_percent / 100 * U32_MAX)
        self._bytes_per_s = shape.rate_bps // 8
        self._limit = shape.limit_packets
        if shape.seed is not None:
            self._next_u32 = draws(shape.seed).__next__

    def __len__(self) -> int:
        """Packets held."""
        return len(self._fifo) + len(self._overtakers)

    @property
    def next_at_ns(self) -> int | None:
        """When the next packet is due; None if none is held."""
        fifo, overtakers = self._fifo, self._overtakers
        if overtakers and overtakers[0][0] < fifo[0][0]:
            return overtakers[0][0]
        return fifo[0][0] if fifo else None

    def wait_ns(self, now_ns: int) -> int:
        """How long a packet that enters now will wait for those before it, beyond its own delay and time on the wire.

        The rate times this is the queue, without what is in the delay line. 0 without a rate.
        """
        if not self._bytes_per_s or not self._fifo:
            return 0
        return max(self._fifo[-1][0] - now_ns - self._delay_ns, 0)

    def enqueue(self, now_ns: int, *, packet: P, length_bytes: int) -> int | None:
        """Take `packet` at `now_ns`; return its departure in ns, or None if it is dropped.

        `length_bytes` is the packet's size on the wire, Ethernet header included. `now_ns` never goes back.
        """
        if self._loss and self._loss >= self._next_u32():
            self.dropped += 1
            return None
        fifo = self._fifo
        if len(fifo) + len(self._overtakers) >= self._limit:
            self.overlimit += 1
            return None
        at = now_ns + self._delay_ns
        if self._jitter_ns:
            at += self._next_u32() % (2 * self._jitter_ns) - self._jitter_ns
        if self._bytes_per_s:
            if fifo and fifo[-1][0] > at:
                at = fifo[-1][0]
            at += length_bytes * NS_PER_S // self._bytes_per_s
        if at < now_ns:  # noqa: PLR1730 - max() costs 60 ns, a tenth of the whole, on a path taken per packet
            at = now_ns
        if fifo and at < fifo[-1][0]:
            self._order += 1
            heappush(self._overtakers, (at, self._order, packet))
        else:
            fifo.append((at, packet))
        self.delayed += 1
        return at

    def dequeue(self, now_ns: int) -> tuple[int, P] | None:
        """Hand out the next packet that is due at `now_ns`, with its departure in ns; None if none is due."""
        fifo = self._fifo
        if self._overtakers and self._overtakers[0][0] < fifo[0][0]:
            if self._overtakers[0][0] > now_ns:
                return None
            at, _, packet = heappop(self._overtakers)
            return at, packet
        if fifo and fifo[0][0] <= now_ns:
            return fifo.popleft()
        return None
