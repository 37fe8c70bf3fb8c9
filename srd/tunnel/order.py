"""Puts the packets of each inner flow into their order again. SRD delivers messages in the order of their arrival.

Theory of operation.
1. The sender numbers the packets of each flow with 32 bits that wrap, from 0 in each session, when they leave its
   queue: what the queue drops leaves no gap. A flow is a bucket of the sender's hash, and keeps its number for the
   whole session.
2. A packet with the expected number is handed over at once. One with a later number is held, for its hold time at most.
3. When a held packet's time is up, the gaps before it are given up: it is handed over with all that is held before it,
   and with what follows it up to the next gap. When more than `limit_bytes` are held, this happens at once to the
   packet whose time would be up first.
4. What arrives after it was given up is late, and is handed over at once: to TCP, a late packet is better than none.
5. A number is late when it is less than the expected one as serial numbers are compared (RFC 1982, section 3.2, with
   32 bits). So there is no number with which the other end stops a flow: numbers that jump forward cost it one hold
   time, and numbers that start again from 0 are handed over as they arrive until they reach the expected one.
6. Flows share the limit and nothing else: no packet waits for one of another flow.

Memory. A flow that was seen keeps its expected number (about 100 bytes; there are 65,536 flows at most). All else is in
proportion to what is held: a held packet says how much memory is kept for it, which may be shared with others, and
counts as `HELD_PACKET_BYTES` more, as Linux counts a buffer's `truesize`: many small packets take more memory than
their bytes.

A flow's held packets are a heap by number. They leave it from the lowest number up, so those below the expected number
are gone, and no other record is needed of which are held. Numbers are kept without their wrap, as they grow.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Final, Generic, Protocol, TypeVar


class Holdable(Protocol):
    """A packet."""

    def hold(self) -> int:
        """Note that it is held; return how many bytes of memory are kept that were not kept before."""

    def let_go(self) -> int:
        """Note that it is not held any more; return how many bytes are kept no longer."""


T = TypeVar("T", bound=Holdable)

HELD_PACKET_BYTES: Final = 256
"""What a held packet counts beside its own bytes: two heap entries, and the objects of the item itself."""

_SERIAL_MASK: Final = (1 << 32) - 1
_SERIAL_HALF: Final = 1 << 31
_MIN_DEADLINES: Final = 64  # fewer are never sorted out


class FlowOrder(Generic[T]):
    """`take` each packet that arrives, and `expire` at `next_at`; both return what is to be handed over now.

    `limit_bytes` is the most that is held, of all flows together. `reordered` counts packets that were held, `late`
    those that arrived after they had been given up (or twice), and `given_up` the gaps that were given up.
    """

    __slots__ = (
        "_deadlines", "_expected", "_held", "_held_packets", "_limit_bytes", "_taken", "given_up", "held_bytes",
        "late", "reordered",
    )  # fmt: skip

    def __init__(self, *, limit_bytes: int) -> None:
        self.held_bytes = 0  # memory that is kept, with HELD_PACKET_BYTES for each packet
        self.reordered = 0
        self.late = 0
        self.given_up = 0
        self._limit_bytes = limit_bytes
        self._expected: dict[int, int] = {}  # by flow; its lowest 32 bits are the number in the packet
        self._held: dict[int, list[tuple[int, int, T]]] = {}  # by flow: number, arrival, packet
        self._held_packets = 0
        self._taken = 0  # arrivals that were held: no two heap entries are equal, so packets are not compared
        self._deadlines: list[tuple[float, int, int]] = []  # a heap: deadline, flow, number; packets may have left

    def take(self, item: T, *, flow: int, sequence: int, now: float, hold_s: float) -> Sequence[T]:
        """Take a packet that arrived; return what is to be handed over now, in this order.

        `flow` has 16 bits and `sequence` 32, as in the frame, and any value of either is safe.
        """
        expected = self._expected.get(flow, 0)
        distance = (sequence - expected) & _SERIAL_MASK
        if distance == 0:
            self._expected[flow] = expected + 1
            return (item,) if flow not in self._held else self._with_followers(item, flow=flow, expected=expected + 1)
        if distance >= _SERIAL_HALF:
            self.late += 1
            return (item,)
        self._expected.setdefault(flow, 0)
        self._hold(item, flow=flow, number=expected + distance, due_at=now + hold_s)
        return self._within_limit() if self.held_bytes > self._limit_bytes else ()

    def expire(self, *, now: float) -> list[T]:
        """Return what has been held for its time, with what is before it in its flow and what follows it directly."""
        released: list[T] = []
        while (at := self.next_at) is not None and at <= now:
            self._give_up_first(released)
        return released

    def flush(self) -> list[T]:
        """Return all that is held, each flow in its order, and expect every flow from 0: the session has ended."""
        released: list[T] = []
        while self.next_at is not None:
            self._give_up_first(released)
        self._expected.clear()
        return released

    @property
    def next_at(self) -> float | None:
        """When `expire` is due: the earliest deadline of what is held. None: nothing is held."""
        deadlines = self._deadlines
        while deadlines:
            at, flow, number = deadlines[0]
            if number >= self._expected[flow]:
                return at
            heapq.heappop(deadlines)
        return None

    def _hold(self, item: T, *, flow: int, number: int, due_at: float) -> None:
        self.reordered += 1
        self._taken += 1
        self._held_packets += 1
        self.held_bytes += item.hold() + HELD_PACKET_BYTES
        heapq.heappush(self._held.setdefault(flow, []), (number, self._taken, item))
        heapq.heappush(self._deadlines, (due_at, flow, number))
        if len(self._deadlines) > 2 * self._held_packets + _MIN_DEADLINES:
            self._deadlines = [entry for entry in self._deadlines if entry[2] >= self._expected[entry[1]]]
            heapq.heapify(self._deadlines)

    def _with_followers(self, item: T, *, flow: int, expected: int) -> list[T]:
        released = [item]
        self._release(flow, through=expected, into=released)
        return released

    def _within_limit(self) -> list[T]:
        released: list[T] = []
        while self.held_bytes > self._limit_bytes:
            self._give_up_first(released)
        return released

    def _give_up_first(self, into: list[T]) -> None:
        """Give up the gaps before the held packet whose deadline is the earliest. There must be one."""
        if self.next_at is not None:
            _, flow, number = heapq.heappop(self._deadlines)
            self._release(flow, through=number, into=into)

    def _release(self, flow: int, *, through: int, into: list[T]) -> None:
        """Move to `into` what is held up to number `through`, and what follows it without a gap."""
        held = self._held[flow]
        expected = self._expected[flow]
        while held and held[0][0] <= max(through, expected):
            number, _, item = heapq.heappop(held)
            self._held_packets -= 1
            self.held_bytes -= item.let_go() + HELD_PACKET_BYTES
            self.given_up += number > expected
            expected = max(expected, number + 1)
            into.append(item)
        self._expected[flow] = expected
        if not held:
            del self._held[flow]
