"""netns.netem.slots: slots alone; with the queue: test_queue_impairments.py."""

from __future__ import annotations

from netns.netem.distributions import scaled, table
from netns.netem.params import Slot
from netns.netem.prandom import draws
from netns.netem.slots import Slots


def never() -> int:
    raise AssertionError("not this generator")


def test_update__uniform_draw_from_the_spare_generator() -> None:
    spare = draws(2)
    slots = Slots(Slot(min_us=1, max_us=3), next_u32=never, spare_u32=draws(2).__next__)
    for now in range(0, 10**9, 10**7):
        slots.look(now, due_at_ns=now + 1)
        assert slots.opens_at_ns == now + 1000 + (next(spare) * 2000 >> 32)


def test_update__distribution_draws_from_the_seeded_generator() -> None:
    source, entries = draws(3), table("normal")
    assert entries is not None
    slot = Slot(distribution="normal", delay_us=1000, jitter_us=100)
    slots = Slots(slot, next_u32=draws(3).__next__, spare_u32=never)
    for now in range(0, 10**9, 10**7):
        slots.look(now, due_at_ns=now + 1)
        expected = now + 1_000_000 + scaled(entries[next(source) % 4096], jitter_ns=100_000)
        assert slots.opens_at_ns == expected
