"""htsim's files: connection matrices with triggers, topologies of two and three tiers."""

from __future__ import annotations

from pathlib import Path

import pytest

from srd.sim.experiments.errors import ExperimentError
from srd.sim.experiments.htsim import read_matrix, read_topo
from srd.sim.flows import Flow

HOSTS = ["a", "b", "c", "d"]
MATRIX = """\
Nodes 4
Connections 4
Triggers 2
# a comment
0->1 id 1 start 0 size 2000 recv_done_trigger 1
2->1 id 2 start 5000000 size 3000 send_done_trigger 1 recv_done_trigger 2 prio 1
1->3 id 3 trigger 1 size 1000   # when both are complete
3->0 trigger 2 size 1
trigger id 1 barrier count 2
trigger id 2 oneshot
"""
TWO_TIERS = """\
Nodes 32
Tiers 2
Podsize 32
Tier 0
Downlink_speed_Gbps 100
Radix_Down 8
Radix_Up 2
Queue_Down 41380
Queue_Up 82760
Downlink_Latency_ns 1000
Switch_Latency_ns 500
Oversubscribed 4
Tier 1
Downlink_speed_Gbps 200
Radix_Down 4
Downlink_Latency_ns 2000
"""
THREE_TIERS = """\
nodes 16
tiers 3
podsize 4
tier 0
downlink_speed_gbps 100
radix_down 2
radix_up 2
downlink_latency_ns 1000
tier 1
downlink_speed_gbps 100
radix_down 2
radix_up 2
downlink_latency_ns 1000
tier 2
downlink_speed_gbps 100
radix_down 4
downlink_latency_ns 1000
"""


def written(directory: Path, text: str, *, name: str = "x.cm") -> Path:
    path = directory / name
    path.write_text(text)
    return path


def test_matrix(tmp_path: Path) -> None:
    assert read_matrix(written(tmp_path, MATRIX), hosts=HOSTS) == (
        Flow("a", "b", 2000),
        Flow("c", "b", 3000, start_s=5e-6),
        Flow("b", "d", 1000, after=(0, 1), needs=2),
        Flow("d", "a", 1, after=(1,), needs=1),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0->4 size 1", "line 1: host 4; the topology has 4, from 0"),
        ("0->1", "line 1: has no size; flows without end are not simulated"),
        ("0->0 size 5", "line 1: from a host to itself"),
        ("Nodes 4\n0->1 size x", "line 2: 'x' is no number"),
        ("0->1 size 5 trigger 7", "line 1: trigger 7 is not defined, or no flow fires it"),
        ("0->1 size 5 colour 7", "line 1: 'colour' is none of id, "),
        ("Connections 2\n0->1 size 5", " has 1 flows, but says Connections 2"),
        ("Nodes 9\n0->1 size 5", " for 9 hosts; the topology has 4, take a larger one"),
        ("trigger id 1 twice", "line 1: not as in: trigger id 1 oneshot|multishot|barrier"),
        ("hello", "line 1: 'hello' is neither a flow"),
        ("Nodes 4", "0 flows; there are 1 to "),
    ],
)
def test_matrix__what_is_wrong_with_it(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        read_matrix(written(tmp_path, text), hosts=HOSTS)
    assert f"x.cm: {said.lstrip()}" in str(caught.value)


def test_topology_of_two_tiers(tmp_path: Path) -> None:
    topology = read_topo(written(tmp_path, TWO_TIERS, name="two.topo"), seed=3)
    assert (len(topology.hosts), len(topology.leaves), len(topology.spines), topology.seed) == (32, 4, 2, 3)
    host, up = topology.link("h32-leaf4"), topology.link("leaf4-spine2")
    assert host.shape_ba is not None
    assert up.shape_ab is not None
    assert up.shape_ba is not None
    assert (host.shape_ba.rate_bps, host.shape_ba.delay_us) == (100_000_000_000, 1.5)
    assert (up.shape_ab.rate_bps, up.shape_ab.delay_us) == (200_000_000_000, 2)
    assert host.shape_ba.limit_packets == 5 + 10 + 1  # 18,750 B in flight, a queue of 41,380 B, one being sent
    assert up.shape_ab.limit_packets == 34  # 50,000 + 82,760 bytes are 32.1 packets, and one is being sent


def test_topology_of_three_tiers_is_a_fat_tree(tmp_path: Path) -> None:
    topology = read_topo(written(tmp_path, THREE_TIERS, name="three.topo"), seed=1)
    assert [len(each) for each in (topology.hosts, topology.leaves, topology.spines, topology.links)] == [16, 8, 4, 48]
    hops = topology.distances("h1")
    assert [hops[f"h{number}"] for number in (2, 3, 5)] == [2, 4, 6]
    for switch in topology.switches:
        assert len(topology.links_of[switch.name]) == 4


def test_topology__what_is_wrong_with_it(tmp_path: Path) -> None:
    for text, said in (
        (
            TWO_TIERS.replace("Radix_Down 8", "Radix_Down 7"),
            "32 nodes with 1 links up do not fill switches with 7 ports",
        ),
        (TWO_TIERS.replace("Nodes 32", ""), "lacks nodes"),
        (TWO_TIERS.replace("Tiers 2", "Tiers 3"), "has 2 tiers; give Tiers 2 or 3"),
        (TWO_TIERS.replace("Tiers 2", "Tiers"), "line 2: 'Tiers' is no key and value"),
    ):
        with pytest.raises(ExperimentError, match=said):
            read_topo(written(tmp_path, text, name="bad.topo"), seed=1)
