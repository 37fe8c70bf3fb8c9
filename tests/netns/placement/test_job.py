"""netns.placement.job: job files, and one-line errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from netns.errors import JobError
from netns.inventory.nodes import HOSTNAME_LABEL, layer_label
from netns.placement.job import Job, read_job
from netns.placement.model import Affinity, Expression, PlacementRequest, Slice, Term, Toleration

SMALL = "name: a\nranks: 4\ncommand: [x]\n"
FULL = """
name: allreduce
ranks: 8
command: [python3, ring.py, --verify]
topology: {required: 2}
slices: [{layer: layer-3, size: 4}, {layer: host, size: 2}]
resources: {cpu: 500m, memory: 1Gi, nvidia.com/gpu: 1}
env: {LOG: "1"}
node_selector: {zone: a}
tolerations: [{key: gpu, operator: Exists}]
image: example/ring:1
queue: research
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "job.yaml"


def read(file: Path, text: str) -> Job:
    file.write_text(text)
    return read_job(file)


def test_read_job__everything(file: Path) -> None:
    job = read(file, FULL)
    assert job.command == ("python3", "ring.py", "--verify")
    assert job.requests() == (
        PlacementRequest(
            name="allreduce",
            count=8,
            requests={"cpu": 500, "memory": 2**30, "nvidia.com/gpu": 1},
            mode="required",
            level=layer_label(2),
            slices=(Slice(layer_label(3), 4), Slice(HOSTNAME_LABEL, 2)),
            node_selector={"zone": "a"},
            tolerations=(Toleration("gpu", "Exists"),),
        ),
    )
    assert (job.env, job.image, job.queue) == ({"LOG": "1"}, "example/ring:1", "research")


def test_read_job__modes(file: Path) -> None:
    assert read(file, SMALL).requests()[0].mode == "unconstrained"
    assert read(file, SMALL + "topology: {preferred: host}").requests()[0].mode == "preferred"
    assert read(file, SMALL + "slices: [{layer: 3, size: 2}]").requests()[0].mode == "slice_only"
    assert read(file, SMALL + "topology: {required: example.com/rack}").requests()[0].level == "example.com/rack"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no job; give name, ranks and command"),
        ("name: a", "ranks: missing"),
        ("name: a\nranks: 4", "command: missing"),
        (SMALL.replace("4", "0"), "ranks: 0 should be greater than or equal to 1"),
        (SMALL.replace("4", "four"), "ranks: 'four' should be a valid integer"),
        (SMALL.replace("4", "2000000"), "ranks: 2000000 should be less than or equal to 1000000"),
        (SMALL.replace("[x]", "[]"), "command: [] "),
        (SMALL.replace("[x]", "x"), "command: 'x' should be a valid list"),
        (SMALL.replace("a\n", "A b\n"), "name: 'A b' is no name; use lower-case letters"),
        (
            SMALL + "queue: -q",
            "queue: '-q' is no name; use lower-case letters, digits and '-', at most 63, first and last no '-'",
        ),
        (SMALL + "rank: 3", "rank: no such key; the known ones here are name, ranks, command"),
        (SMALL + "topology: {required: 1, preferred: 2}", "topology: required stands beside preferred"),
        (SMALL + "topology: {wanted: 1}", "topology.wanted: no such key; the known ones here are required, preferred"),
        (SMALL + "topology: {required: ''}", "topology.required: '' "),
        (SMALL + "slices: [{layer: 3, size: 3}]", "slices[0].size: 3 does not divide 4 ranks"),
        (SMALL + "slices: [{layer: 3, size: 0}]", "slices[0].size: 0 should be greater than or equal to 1"),
        (SMALL + "slices: [{size: 2}]", "slices[0].layer: missing"),
        (
            SMALL + "slices: [{layer: 2, size: 4}, {layer: 3, size: 3}]",
            "slices[1].size: 3 does not divide 4 ranks of the slice around it",
        ),
        (SMALL + "resources: {cpu: lots}", "resources: cpu: 'lots' is no quantity"),
        (SMALL + "resources: {cpu: -1}", "resources: cpu: -1 is negative"),
        (SMALL + "resources: {pods: 1}", "resources: pods: every rank takes one anyway; leave it out"),
        (SMALL + "env: {A=B: x}", "env.A=B.[key]: 'A=B' String should match pattern"),
        (SMALL + "env: {A: 1}", "env.A: 1 should be a valid string"),
        (SMALL + "tolerations: [{operator: Never}]", "tolerations[0].operator: 'Never' should be 'Equal' or 'Exists'"),
        (SMALL + "leader: {cpu: 1}", "leader.cpu: no such key; the known ones here are resources"),
        (
            SMALL + "leader: {}\nslices: [{layer: 3, size: 2}]",
            "slices[0].size: 2 does not divide 3 ranks beside the leader",
        ),
        (
            SMALL + "node_affinity: {required: [{match_expressions: []}]}",
            "node_affinity.required[0].match_expressions: []",
        ),
        (
            SMALL + "node_affinity: {required: [{match_expressions: [{key: a, operator: Exists, value: x}]}]}",
            "node_affinity.required[0].match_expressions[0].value: no such key; the known ones here are key, operator",
        ),
        (
            SMALL + "node_affinity: {preferred: [{weight: 101, match_expressions: [{key: a, operator: Exists}]}]}",
            "node_affinity.preferred[0].weight: 101 should be less than or equal to 100",
        ),
        ("name: a\nranks: 1\ncommand: [x]\nleader: {}", "leader: leads the other ranks; give at least 2 ranks"),
    ],
)
def test_read_job__bad_flow(file: Path, text: str, message: str) -> None:
    with pytest.raises(JobError) as caught:
        read(file, text)
    assert str(caught.value).startswith(f"{file}: {message}")
    assert "\n" not in str(caught.value)


def test_read_job__no_file_bad_flow(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"none.yaml: No such file or directory$"):
        read_job(tmp_path / "none.yaml")


def test_read_job__a_leader_is_a_request_of_its_own(file: Path) -> None:
    job = read(file, SMALL + "resources: {cpu: 1}\nleader: {resources: {cpu: 4}}\nslices: [{layer: 3, size: 3}]")
    workers, leader = job.requests()
    assert (workers.count, workers.requests, workers.group) == (3, {"cpu": 1000}, "a")
    assert (leader.count, leader.requests, leader.group) == (1, {"cpu": 4000}, "a")


def test_read_job__node_affinity(file: Path) -> None:
    (request,) = read(
        file,
        SMALL
        + """
node_affinity:
  required: [{match_expressions: [{key: gpu, operator: In, values: [h100, h200]}]}]
  preferred: [{weight: 10, match_expressions: [{key: fast, operator: Exists}]}]
""",
    ).requests()
    assert request.affinity == Affinity(
        required=(Term((Expression("gpu", "In", ("h100", "h200")),)),),
        preferred=((10, Term((Expression("fast", "Exists"),))),),
    )
