"""What local queues have used lately, and who of one queue comes first by it."""

from __future__ import annotations

import math

from netns.governance import Settings
from netns.governance.settings import UsageSharing
from netns.governance.usage import UsageLedger
from tests.netns.governance_world import ANY, admitted, once, preempted, queue, runs, waits, world

SHARING = UsageSharing(half_life_s=600, sampling_s=300, resource_weights={"gpu": 4.0})


def test_the_value_of_a_local_queue() -> None:
    ledger = UsageLedger(SHARING)
    ledger.used["n/a"] = {"cpu": 8000, "gpu": 2}
    assert ledger.value("n/a", weight=2.0) == (8 + 4 * 2) / 2
    assert ledger.value("n/a", weight=0) == math.inf
    ledger.forget("n/a")
    assert ledger.value("n/a", weight=1.0) == 0


def test_a_reservation_counts_nothing_without_a_half_life() -> None:
    sharing = UsageSharing(half_life_s=0)
    state = world(queue("a", 10, by_usage=True), settings=Settings(usage_sharing=sharing))
    waits(state, "w", "a")
    assert admitted(once(state)) == ["w"]
    assert state.ledger is not None
    assert state.ledger.value("n/a", weight=1.0) == 0


def test_who_has_used_less_goes_first_and_a_reservation_counts_at_once() -> None:
    state = world(queue("a", 10, by_usage=True), queue("b", 0), settings=Settings(usage_sharing=SHARING))
    state.local_queues["n/other"] = type(state.local_queues["n/a"])("n/other", "a")
    assert state.ledger is not None
    state.ledger.used["n/a"] = {"cpu": 1}
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
