"""scripts.benches.chaos.host: checksums, slots, conditions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from netns.netem.shape import Shape
from netns.topology.model import leaf_spine
from scripts.benches.chaos.host import internet_checksum
from scripts.benches.chaos.run import ChaosRun
from scripts.benches.chaos.scenario import ChaosMessage, ChaosScenario, Conditions
from srd.proto.config import ProtocolConfig


def test_internet_checksum__rfc_1071_example() -> None:
    assert internet_checksum(bytes.fromhex("0001f203f4f5f6f7")) == 0xDDF2


FAULT_FREE = ChaosScenario(
    seed=1,
    topology=leaf_spine(shape=Shape(delay_us=100)),
    config=ProtocolConfig(paths=4),
    conditions=Conditions(),
    outages=(),
    restarts=(),
    messages=tuple(ChaosMessage("h1", 0.1 + n / 1000, 1000 * n, 30_000) for n in range(20)),
    pool_packets=100,
    release_s=0.001,
)


@pytest.mark.parametrize(
    "conditions",
    [Conditions(), Conditions(duplicate=0.3), Conditions(late=0.3, late_s=0.004), Conditions(flip=0.1)],
    ids=str,
)
def test_conditions__occur_without_violations(conditions: Conditions) -> None:
    run = ChaosRun(replace(FAULT_FREE, conditions=conditions))
    report = run.run()
    assert (report.delivered, report.failed, report.violations) == (20, 0, [])
    receiver = run.responder.core.peer(next(iter(run.responder.peers.values()))).receiver
    assert receiver.duplicates > 0 or conditions.duplicate == 0
    assert (report.damaged > 0) == (conditions.flip > 0)
    assert len(run.responder._free) == 100


def test_pool__a_packet_without_a_slot_is_dropped_and_retransmitted() -> None:
    """Memory for little more than the credit, held by the application: a duplicate finds no slot."""
    config = replace(FAULT_FREE.config, receive_window_bytes=60_000, max_message_bytes=60_000)
    run = ChaosRun(
        replace(FAULT_FREE, config=config, pool_packets=8, conditions=Conditions(duplicate=0.5), release_s=0.01)
    )
    report = run.run()
    assert (report.delivered, report.failed, report.violations) == (20, 0, [])
    assert run.responder.full > 0
    assert len(run.responder._free) == 8
