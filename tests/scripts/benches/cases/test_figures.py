"""scripts.benches.cases: figures match their definitions: ideals by hand, and bounds."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from scripts.benches.case import CaseOptions
from scripts.benches.cases import blackhole, messages, placement_scaling, scale
from scripts.benches.reference_fabric import ENDS, LINK, fabric
from scripts.harness.errors import BenchError
from srd.proto.wire.data import Burst
from srd.sim.experiments.bulk import bulk
from srd.sim.experiments.experiment import run


def test_messages__drops_the_second_packet_of_every_tenth_message_once() -> None:
    one_loss = messages.OneLoss()

    def burst(message: int, offset: int) -> Burst:
        return Burst("a", 0, 0, 0, 0, 3, 0, message, 5000, 0, offset, 0, 0, 3000, 1000)

    assert [one_loss(burst(10, 0), index) for index in range(3)] == [False, True, False]
    assert not one_loss(burst(10, 1000), 0)  # its retransmission
    assert one_loss(burst(20, 1000), 0)
    assert not one_loss(burst(11, 1000), 0)
    assert one_loss.lost == {10, 20}


@pytest.mark.compiled
def test_messages__measures() -> None:
    figures = messages.measure(1, 0.0).ours
    assert 0.5 < figures["undisturbed_ratio"] < 2
    assert figures["last_ms"] > 1000 * messages.MESSAGES * messages.MESSAGE_BYTES * 8 / 1e9


def test_blackhole__repair_is_detected_when_the_link_carries_packets() -> None:
    running = bulk(fabric(spines=2, name="x", seed=1), seed=1, ends=ENDS)
    now_ns = running.simulation.now_ns
    link = running.simulation.fabric.links["leaf1", "spine1"]
    repair = blackhole.LinkRepair(running, link, now_ns)
    idle = blackhole.LinkRepair(running, running.simulation.fabric.links["spine1", "leaf1"], now_ns)
    repair.watch(now_ns)
    idle.watch(now_ns)
    running.simulation.run(seconds=0.02)
    fastest_s = blackhole.IN_USE_BYTES * 8 / LINK.rate_bps
    assert fastest_s < repair.seconds < 4 * fastest_s
    assert math.isinf(idle.seconds)  # ACKs alone do not count


def test_placement__cluster_of_kueue_and_all_figures() -> None:
    nodes, usage = placement_scaling.cluster(600)
    racks = {tuple(node.labels[level] for level in placement_scaling.LAYERS) for node in nodes}
    assert len(racks) == math.ceil(600 / 16)
    assert len({rack[:2] for rack in racks}) == math.ceil(600 / 256)
    assert len(usage) == 75
    figures = placement_scaling.measure()
    assert all(value > 0 for value in figures.values())
    assert figures["assign_2500_ms"] == max(value for key, value in figures.items() if key.startswith("assign_2500_"))
    assert {wanted.figure for wanted in placement_scaling.WANTED} <= set(figures)


def test_scale__counts_what_two_processes_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "FABRIC", "half8")  # forked: the processes have it, too
    (found,) = scale.rounds(CaseOptions(packets=4_000, seed=3))
    alone = [scale.simulate(int(4_000 / 2 / scale.HOPS_PER_BYTE), seed) for seed in (3, 4)]
    assert found.seed == 3
    assert found.ours["hops"] == sum(each.hops for each in alone)
    assert found.ours["hops_per_wall_second"] == pytest.approx(found.ours["hops"] / found.ours["wall_s"])
    assert found.ours["memory_mb"] > 20


def test_scale__needs_every_flow_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "FABRIC", "half8")
    monkeypatch.setattr(scale, "run", lambda experiment: run(replace(experiment, limit_s=1e-6)))
    with pytest.raises(BenchError, match=r"^seed 3: 16 flows were not complete"):
        next(scale.rounds(CaseOptions(packets=4_000, seed=3)))
