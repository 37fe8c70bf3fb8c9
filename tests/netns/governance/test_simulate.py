"""Traces, generated and read, and what a simulation of them says."""

from __future__ import annotations

from pathlib import Path

import pytest

from netns.errors import GovernanceError
from netns.governance.simulate import NODE_GPUS, GovernanceSimulation, cluster_nodes
from netns.governance.trace import SHAPES, TraceJob, generated, read_trace

NODES = 40


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_a_generated_trace_has_the_load_that_was_asked_for(shape: str) -> None:
    trace = generated(shape, jobs=400, gpus=NODES * NODE_GPUS, teams=3, load=0.5, seed=1)
    assert trace == generated(shape, jobs=400, gpus=NODES * NODE_GPUS, teams=3, load=0.5, seed=1)
    assert [job.submitted_s for job in trace] == sorted(job.submitted_s for job in trace)
    assert {job.team for job in trace} == {"team00", "team01", "team02"}
    used = sum(job.duration_s * job.gpus for job in trace) / trace[-1].submitted_s / (NODES * NODE_GPUS)
    assert used == pytest.approx(0.5)


@pytest.mark.parametrize("governance", [False, True])
@pytest.mark.parametrize("topology", [False, True])
def test_each_job_gets_its_time(*, governance: bool, topology: bool) -> None:
    trace = generated("philly", jobs=120, gpus=NODES * NODE_GPUS, teams=3, load=3.0, seed=2)
    result = GovernanceSimulation(trace, nodes=NODES, governance=governance, topology=topology).run()
    assert (len(result.waits_s), result.unfinished, result.never_fit) == (120, 0, 0)
    assert min(result.waits_s) == 0 < max(result.waits_s)
    assert bool(result.preemptions) == governance
    assert 0 < result.utilisation <= 1
    assert 0 < result.fairness <= 1


def test_topology_keeps_ranks_together_and_a_job_for_more_than_the_cluster_never_fits() -> None:
    trace = [TraceJob(0.0, 10.0, 16 * NODE_GPUS, "a", 0), TraceJob(1.0, 10.0, 41 * NODE_GPUS, "a", 0)]
    near, far = (
        GovernanceSimulation(trace, nodes=NODES, governance=False, topology=topology, seed=3).run()
        for topology in (True, False)
    )
    assert near.cross_rack_fraction == 0 < far.cross_rack_fraction
    assert (near.never_fit, near.unfinished) == (1, 1)


def test_nodes_are_in_racks_of_16_and_blocks_of_256() -> None:
    nodes = cluster_nodes(257)
    assert [len({tuple(node.labels.values())[depth] for node in nodes}) for depth in range(4)] == [1, 2, 17, 257]


HEAD = "submitted_s,duration_s,gpus,team,priority\n"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("submitted_s,gpus,team\n", "no column duration_s"),
        (HEAD, "holds no job"),
        (HEAD + "0,1,0,a,0\n", "line 2: gpus and duration_s are more than 0"),
        (HEAD + "0,inf,1,a,0\n", "line 2: gpus and duration_s are more than 0"),
        (HEAD + "0,1,1,,0\n", "line 2: gpus and duration_s are more than 0, team is not empty"),
        (HEAD + "0,1,x,a,0\n", "line 2: invalid literal"),
    ],
)
def test_a_wrong_trace_is_one_line(tmp_path: Path, content: str, line: str) -> None:
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(GovernanceError, match=line):
        read_trace(tmp_path / "t.csv")


def test_a_trace_is_sorted_by_time(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(HEAD + "5,1,8,a,\n0,1,8,b,7\n")
    assert read_trace(tmp_path / "t.csv") == [TraceJob(0.0, 1.0, 8, "b", 7), TraceJob(5.0, 1.0, 8, "a", 0)]
