"""scripts.benches.chaos.scenario: a seed has one scenario; every fault occurs, and is absent."""

from __future__ import annotations

from scripts.benches.chaos.scenario import (
    FAULTS_END_S,
    LONGEST_BYTES,
    POSTING_S,
    ChaosScenario,
    Flaw,
    MessageKind,
    scenario,
)
from scripts.benches.chaos.target import READABLE_FROM

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


def test_scenario__messages_fit_and_faults_end() -> None:
    for what in SCENARIOS:
        for message in what.messages:
            assert READABLE_FROM <= message.payload_offset <= (1 << 20) - READABLE_FROM - message.length
            assert message.length <= (
                what.config.max_message_bytes if message.kind is MessageKind.SEND else LONGEST_BYTES
            )
            assert message.at_s <= POSTING_S
        ends = [0, *(message.target_offset + message.length for message in what.messages)]
        assert all(message.target_offset >= end for message, end in zip(what.messages, ends, strict=False)), (
            "targets overlap"
        )
        assert ends[-1] <= what.registered_bytes
        assert all(outage.at_s + outage.seconds <= FAULTS_END_S for outage in what.outages)
        window_packets = what.config.receive_window_bytes // (what.topology.mtu - 84)
        assert what.pool_packets > window_packets
