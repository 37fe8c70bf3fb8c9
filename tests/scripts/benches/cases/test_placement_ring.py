"""scripts.benches.cases.placement_ring: placements, predictions by hand, and a short run."""

from __future__ import annotations

import os

import pytest

from netns.examples import file_named
from netns.lab.state import LabDirectory
from netns.netem.shape import Shape
from netns.topology.clos import ClosLinks, clos
from netns.topology.file import read_topology
from netns.topology.model import Topology
from scripts.benches.cases import placement_ring as placement
from scripts.harness.errors import BenchError


@pytest.fixture
def topology() -> Topology:
    return read_topology(file_named("cluster"))


def blocks(hosts: tuple[str, ...]) -> list[int]:
    return [(int(host[1:]) - 1) // 4 for host in hosts]  # as netns/examples/cluster.yaml numbers them


def test_placements__a_rack_a_block_and_apart(topology: Topology) -> None:
    hosts = placement.placements(topology)
    racks = {name: [topology.switch_of(host) for host in hosts[name]] for name in placement.PLACEMENTS}
    assert racks["required"] == ["leaf1"] * 4
    assert len(set(racks["preferred"])) == 2
    assert len(set(blocks(hosts["preferred"]))) == 1
    assert hosts["required"][0] not in hosts["preferred"], "its host is taken"
    assert blocks(hosts["bad"]) == [0, 1, 2, 3]


def test_figures__by_hand(topology: Topology) -> None:
    """Links of a step: 2, 6. Bytes 1.5 x 8 MiB at 100 and 50 Mbit/s; delays 50 us, 1.05 ms and 5.05 ms a step."""
    hosts = placement.placements(topology)
    seconds = {"required": [1.0, 1.2, 9.0], "preferred": [4.0, 1.5, 1.6], "bad": [3.5, 3.0]}
    found = placement.figures(topology, hosts=hosts, seconds=seconds, tensor_bytes=8 << 20)
    assert found["bad_over_required_ratio"] == 3
    assert found["preferred_over_required_ratio"] == 1.5
    assert (found["required_median_s"], found["bad_median_s"]) == (1.2, 3.25)
    assert (found["required_links"], found["preferred_links"], found["bad_links"]) == (8, 2 + 4 + 2 + 4, 24)
    assert found["predicted_hops_ratio"] == 3
    fast_s = 1.5 * (8 << 20) * 8 / 100e6
    assert found["required_model_s"] == pytest.approx(fast_s + 6 * 50e-6)
    assert found["preferred_model_s"] == pytest.approx(fast_s + 6 * 1.05e-3)
    assert found["bad_model_s"] == pytest.approx(2 * fast_s + 6 * 5.05e-3)
    assert found["predicted_model_ratio"] == found["bad_model_s"] / found["required_model_s"]


def test_modelled__without_rates_only_delays() -> None:
    topology = clos(links=ClosLinks(leaf=Shape(delay_us=1000)))
    assert placement.modelled_s(topology, hosts=("h1", "h5"), tensor_bytes=100) == pytest.approx(2 * 2e-3)
    assert placement.modelled_s(topology, hosts=("h1", "h2"), tensor_bytes=100) == 0


@pytest.mark.root
@pytest.mark.long
def test_measure__short_run() -> None:
    found = placement.measure(1, size=placement.RingSize(tensor_bytes=40_000, iterations=2))
    assert all(found[f"{name}_iteration_s"] > 0 for name in placement.PLACEMENTS)
    assert found["bad_iteration_s"] > 6 * 5.05e-3, "six steps cannot be faster than their delays"
    assert not LabDirectory(f"placement-{os.getpid()}").path.exists()


@pytest.mark.root
def test_measure__failed_rank_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "PROGRAM", "srd.examples.nosuch")
    with pytest.raises(BenchError, match=r"^rank \d on h\d+ failed with status 1: .*srd.examples.nosuch"):
        placement.measure(1, size=placement.RingSize(tensor_bytes=4, iterations=1))
    assert not LabDirectory(f"placement-{os.getpid()}").path.exists()
