"""scripts.benches.torture.scenario: a seed has one scenario, with valid settings, that survives JSON."""

from __future__ import annotations

import pytest

from scripts.benches.torture.local import config
from scripts.benches.torture.plans import GIB, FaultKind, Net, RequestKind, TortureScenario
from scripts.benches.torture.scenario import ATTACKS, LIE, Capabilities, scenario

ALL = Capabilities(namespaces=True, compiled=True, giant=True)
SEEDS = range(300)


@pytest.fixture(scope="module")
def many() -> list[TortureScenario]:
    return [scenario(seed, capabilities=ALL, seconds=3.0) for seed in SEEDS]


def test_scenario__is_reproducible_and_differs_by_seed(many: list[TortureScenario]) -> None:
    assert many[:20] == [scenario(seed, capabilities=ALL, seconds=3.0) for seed in range(20)]
    assert len({each.describe() for each in many}) > len(SEEDS) // 2


def test_scenario__settings_are_valid(many: list[TortureScenario]) -> None:
    for each in many:
        for plan in (each.receiver.endpoint, *(sender.endpoint for sender in each.senders)):
            config(plan)  # raises UsageError otherwise
        assert all(event.worker <= len(each.senders) for event in each.events)
        assert each.network.net is Net.LOOPBACK or set(range(len(each.senders) + 1)) <= set(each.network.mtus)


def test_scenario__everything_occurs(many: list[TortureScenario]) -> None:
    assert {each.network.net for each in many} == set(Net)
    assert {event.what for each in many for event in each.events} == set(FaultKind)
    assert {kind for each in many for attacker in each.attackers for kind in attacker.kinds} == {*ATTACKS, LIE}
    weights = [sender.weights for each in many for sender in each.senders]
    assert all(any(weight[kind] for weight in weights) for kind in RequestKind)
    assert any(each.files for each in many)
    assert any(each.fault_free for each in many)
    assert any(sender.giant_bytes == GIB for each in many for sender in each.senders)
    endpoints = [sender.endpoint for each in many for sender in each.senders]
    assert {plan.compiled for plan in endpoints} == {plan.uvloop for plan in endpoints} == {True, False}
    assert any(plan.first_message for plan in endpoints)
    assert any(plan.clock_wraps_after_s for plan in endpoints)


def test_scenario__without_capabilities_on_loopback() -> None:
    for seed in range(50):
        each = scenario(seed, capabilities=Capabilities(), seconds=3.0)
        assert each.network.net is Net.LOOPBACK
        assert not each.receiver.endpoint.compiled
        assert all(event.what in (FaultKind.KILL, FaultKind.STOP) for event in each.events)
        assert all("icmp" not in attacker.kinds for attacker in each.attackers)
