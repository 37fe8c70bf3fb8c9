"""What local queues have used lately, and who of one queue comes first by it."""

from __future__ import annotations

import math

from netns.governance import Settings
from netns.governance.settings import UsageSharing
from netns.governance.usage import UsageLedger
from tests.netns.governance_world import ANY, admitted, once, preempted, queue, runs, waits, world

SHARING = UsageSharing(half_life_s=600, sampling_s=300, resource_weights={"gpu": 4.0})


def test_the_average_halves_in_a_half_life() -> None:
    ledger = UsageLedger(SHARING)
    ledger.sample("n/a", {"cpu": 8000}, now=0.0)
    first = ledger.value("n/a", weight=1.0)
    assert math.isclose(first, 8 * (1 - 0.5**0.5))  # as if the queue had existed since one sampling before
    ledger.sample("n/a", {}, now=600.0)
    assert math.isclose(ledger.value("n/a", weight=1.0), first / 2)
    ledger.sample("n/a", {"gpu": 2}, now=1200.0)
    assert math.isclose(ledger.value("n/a", weight=2.0), (first / 4 + 4 * 1) / 2)
    assert ledger.value("n/a", weight=0) == math.inf
    ledger.forget("n/a")
    assert ledger.value("n/a", weight=1.0) == 0


def test_nothing_counts_without_a_half_life() -> None:
    ledger = UsageLedger(UsageSharing(half_life_s=0))
    ledger.sample("n/a", {"cpu": 8000}, now=0.0)
    assert ledger.value("n/a", weight=1.0) == 0


def test_who_has_used_less_goes_first_and_a_reservation_counts_at_once() -> None:
    state = world(queue("a", 10, by_usage=True), queue("b", 0), settings=Settings(usage_sharing=SHARING))
    state.local_queues["n/other"] = type(state.local_queues["n/a"])("n/other", "a")
    assert state.ledger is not None
    state.ledger.sample("n/a", {"cpu": 1}, now=0.0)
    for number, at in enumerate(("a", "a", "other", "other")):
        waits(state, f"w{number}", at, 4, created=number)
    assert admitted(once(state)) == ["w2"]
    assert admitted(once(state)) == ["w0"]


def test_of_one_queue_the_local_queue_with_more_usage_gives_way_first() -> None:
    state = world(queue("a", 4, by_usage=True, preemption=ANY), settings=Settings(usage_sharing=SHARING))
    for name, usage, priority in (("light", 1.0, 0), ("heavy", 5.0, 1)):
        state.local_queues[f"n/{name}"] = type(state.local_queues["n/a"])(f"n/{name}", "a")
        running = runs(state, name, "a", 2, priority=priority, queue_usage=usage)
        running.queue = f"n/{name}"
    waits(state, "in", "a", 2, priority=2)
    assert preempted(once(state)) == {"heavy": "InClusterQueue"}
