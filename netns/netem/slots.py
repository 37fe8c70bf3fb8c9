"""netem's slots: packets that are due wait for the next slot to open, and leave together.

Source: Linux net/sched/sch_netem.c (6.18): get_slot(), get_slot_next(), netem_dequeue().

Theory of operation. Whenever the kernel checks its queue (a packet arrived, one left, its timer expired) and the first
packet is due after the current slot has begun, it begins a new slot, some time after that check. The packet leaves when
it is due and the slot has begun. A slot that has passed its packets or bytes is followed by a new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from netns.netem.distributions import scaled, table
from netns.netem.params import INT32_MAX, Slot

if TYPE_CHECKING:
    from netns.netem.packet_ops import Draw


class Slots:
    """The current slot. `opens_at_ns` is when it begins, which is in the past for an open slot."""

    __slots__ = ("_bytes_left", "_delay_ns", "_draw", "_jitter_ns", "_packets_left", "_slot", "_table", "opens_at_ns")

    def __init__(self, slot: Slot, *, next_u32: Draw, spare_u32: Draw) -> None:
        """The kernel uses its seeded generator for a distribution only; a uniform draw comes from `spare_u32`."""
        self._slot = slot
        self._table = None if slot.distribution is None else table(slot.distribution)
        self._draw = spare_u32 if slot.distribution is None else next_u32
        self._delay_ns = round((slot.min_us if slot.distribution is None else slot.delay_us) * 1000)
        self._jitter_ns = round(((slot.max_us - slot.min_us) if slot.distribution is None else slot.jitter_us) * 1000)
        self.opens_at_ns = 0
        self._refill()

    def look(self, now_ns: int, *, due_at_ns: int) -> None:
        """Update the slot when the queue is checked; its first packet is due at `due_at_ns`."""
        if self.opens_at_ns < due_at_ns:
            self._begin(now_ns)

    def passed(self, now_ns: int, *, length_bytes: int) -> None:
        """Count a packet that has left through the slot."""
        self._packets_left -= 1
        self._bytes_left -= length_bytes
        if self._packets_left <= 0 or self._bytes_left <= 0:
            self._begin(now_ns)

    def _begin(self, now_ns: int) -> None:
        self.opens_at_ns = now_ns + self._next_delay_ns()
        self._refill()

    def _refill(self) -> None:
        self._packets_left = self._slot.packets or INT32_MAX
        self._bytes_left = self._slot.bytes or INT32_MAX

    def _next_delay_ns(self) -> int:
        if self._table is None:
            return self._delay_ns + (self._draw() * self._jitter_ns >> 32)
        return self._delay_ns + scaled(self._table[self._draw() % len(self._table)], jitter_ns=self._jitter_ns)
