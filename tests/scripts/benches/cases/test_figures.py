"""scripts.benches.cases: figures match their definitions: ideals by hand, and bounds."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from scripts.benches.case import CaseOptions
from scripts.benches.cases import messages, placement_scaling, scale
from scripts.harness.errors import BenchError
from srd.sim.experiments.experiment import run


@pytest.mark.compiled
def test_messages__measures() -> None:
    figures = messages.measure(1, 0.0).ours
    assert 0.5 < figures["undisturbed_ratio"] < 2
    assert figures["last_ms"] > 1000 * messages.MESSAGES * messages.MESSAGE_BYTES * 8 / 1e9


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
