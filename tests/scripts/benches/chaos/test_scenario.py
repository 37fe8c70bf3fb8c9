"""scripts.benches.chaos.scenario: a seed has one scenario; every fault occurs, and is absent."""

from __future__ import annotations

from scripts.benches.chaos.scenario import (
    ChaosScenario,
    Flaw,
    scenario,
)

SCENARIOS = [scenario(seed, noise_bytes=1 << 20) for seed in range(1, 200)]


def shape_losses(what: ChaosScenario) -> float:
    return max(link.shape_ab.loss_percent for link in what.topology.links if link.shape_ab is not None)


def test_scenario__is_reproducible() -> None:
    assert scenario(7, noise_bytes=1 << 20) == scenario(7, noise_bytes=1 << 20)
    assert scenario(7, noise_bytes=1 << 20) != scenario(8, noise_bytes=1 << 20)


def test_scenario__every_fault_occurs_and_is_absent() -> None:
    for values in (
        [shape_losses(what) for what in SCENARIOS],
        [what.conditions.duplicate for what in SCENARIOS],
        [what.conditions.late for what in SCENARIOS],
        [what.conditions.flip for what in SCENARIOS],
        [len(what.outages) for what in SCENARIOS],
        [len(what.restarts) for what in SCENARIOS],
        [what.release_s for what in SCENARIOS],
        [len(what.withdrawals) for what in SCENARIOS],
        [any(message.flaw is not Flaw.NONE for message in what.messages) for what in SCENARIOS],
        [any(message.cancel_after_s is not None for message in what.messages) for what in SCENARIOS],
    ):
        assert 0.3 < sum(value > 0 for value in values) / len(SCENARIOS) < 0.7
    assert 25 < max(shape_losses(what) for what in SCENARIOS) <= 30
