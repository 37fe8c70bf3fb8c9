"""netns.netem.slots: slots alone; with the queue: test_queue_impairments.py."""

from __future__ import annotations

from netns.netem.distributions import scaled, table
from netns.netem.params import Slot
from netns.netem.prandom import draws
from netns.netem.slots import Slots


def never() -> int:
    raise AssertionError("not this generator")


def test_update__a_packet_due_after_the_slots_begin_gets_a_new_one() -> None:
    slots = Slots(Slot(min_us=100, max_us=100), next_u32=never, spare_u32=draws(1).__next__)
    slots.look(5000, due_at_ns=7000)
    assert slots.opens_at_ns == 105_000
    slots.look(6000, due_at_ns=7000)
    assert slots.opens_at_ns == 105_000, "it is due before the slot begins, and waits for it"


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


def test_passed__packets_and_bytes_fill_a_slot() -> None:
    slots = Slots(Slot(min_us=1, max_us=1, packets=2, bytes=1000), next_u32=never, spare_u32=draws(1).__next__)
    slots.passed(0, length_bytes=100)
    assert slots.opens_at_ns == 0
    slots.passed(0, length_bytes=100)
    assert slots.opens_at_ns == 1000, "two packets"
    slots.passed(1000, length_bytes=1000)
    assert slots.opens_at_ns == 2000, "1000 bytes"
    slots.passed(2000, length_bytes=999)
    assert slots.opens_at_ns == 2000
