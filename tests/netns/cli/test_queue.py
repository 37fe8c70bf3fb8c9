"""`srd-lab queue`, without a lab: what users see, and the one line for each mistake."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from netns.cli import main
from netns.governance.store import JobStore
from netns.lab.lab import Lab
from netns.topology.file import read_topology
from tests.netns.cli.srd_lab import srd_lab, srd_lab_process
from tests.netns.governance.test_files import OTHERS, QUEUE

TOPOLOGY = """
name: {name}
mtu: 1500
clos: {{blocks: 1, leaves_per_block: 1, hosts_per_leaf: 2, aggregations_per_block: 1, spines: 1}}
"""
TWO_FLAVORS = """
{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: small}, spec: {}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: large}, spec: {}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team-a}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [pods]
    flavors:
    - {name: small, resources: [{name: pods, nominalQuota: 1}]}
    - {name: large, resources: [{name: pods, nominalQuota: 2}]}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: lq, namespace: a}, spec: {clusterQueue: team-a}}
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    file = tmp_path / "job.yaml"
    file.write_text("{name: job, ranks: 2, command: ['true'], resources: {cpu: 1}}")
    return file


class _Cli:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, *words: str) -> Result:
        return CliRunner().invoke(main, ["queue", *words], env={"SRD_LAB_QUEUE": str(self._path)})


@pytest.fixture
def cli(tmp_path: Path) -> _Cli:
    return _Cli(tmp_path / "queue.sqlite")


def _define(tmp_path: Path) -> None:
    with JobStore(tmp_path / "queue.sqlite") as store:
        store.set_cluster({"a.yaml": QUEUE.encode(), "b.yaml": OTHERS.encode()})


def test_a_job_from_submission_to_its_end(cli: _Cli, job: Path, tmp_path: Path) -> None:
    _define(tmp_path)
    done = cli("submit", str(job), "--queue", "a/lq", "--priority", "high")
    assert done.output == "job 1 job: waits in a/lq\n"
    (row,) = json.loads(cli("ls", "--json").output)
    assert (row["name"], row["phase"], row["priority_class"]) == ("job", "pending", "high")
    assert cli("why", "job").output == "job: not looked at yet; srd-lab queue run serves the queues\n"
    with JobStore(tmp_path / "queue.sqlite") as store:
        store.set_phase(1, "running", now=1.0, hosts=("h1", "h2"), used={("on-demand", "cpu"): 2_000})
    assert cli("why", "1").output == "job: runs on h1, h2\n"
    (cpu, gpu) = json.loads(cli("status", "--json").output)
    assert (cpu["quota"], cpu["used"], cpu["running"], gpu["used"]) == (10_000, 2_000, 1, 0)
    assert cli("cancel", "job").output == "job 1 job: is being ended\n"
    assert cli("drain", "team-a").output == "team-a: drains\n"
    assert json.loads(cli("status", "--json").output)[0]["state"] == "drained"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("submit", "JOB", "--queue", "a/other"), "--queue: no local queue a/other; there are a/lq"),
        (("submit", "JOB", "--queue", "a/lq", "--priority", "x"), "--priority: no priority class x; there are high"),
        (("why", "nothing"), "job nothing: no such job; srd-lab queue ls has them"),
        (("drain", "nothing"), "no ClusterQueue nothing; there are team-a"),
        (("sim", "/no/such.csv"), "/no/such.csv: No such file or directory"),
    ],
)
def test_a_mistake_is_one_line(cli: _Cli, job: Path, tmp_path: Path, words: tuple[str, ...], line: str) -> None:
    _define(tmp_path)
    done = cli(*(str(job) if word == "JOB" else word for word in words))
    assert done.exit_code == 2
    assert done.output.strip().splitlines()[-1].endswith(line)


def test_a_job_waits_for_its_name(cli: _Cli, job: Path) -> None:
    assert cli("submit", str(job)).exit_code == 0
    done = cli("submit", str(job))
    assert done.exit_code == 2
    assert "job job: one of this name waits or runs; cancel it, or rename this" in done.output


def test_a_simulation_of_a_file(cli: _Cli, tmp_path: Path) -> None:
    """Two teams with half of 2 nodes each; one asks for all before the other comes: it borrows, and gives back."""
    trace = tmp_path / "trace.csv"
    trace.write_text("submitted_s,duration_s,gpus,team,priority\n0,100,16,a,0\n10,50,8,b,0\n")
    found = json.loads(cli("sim", str(trace), "--nodes", "2", "--json").output)
    by_kind = {(each["governance"], each["topology"]): each for each in found}
    for topology in (True, False):
        assert by_kind[True, topology]["preemptions"] == 1
        assert by_kind[True, topology]["wait_p99_s"] == 0.0  # it starts at once
        assert by_kind[False, topology]["preemptions"] == 0
        assert by_kind[False, topology]["wait_p99_s"] == 90.0
    assert by_kind[True, True]["between_racks_fraction"] == 0.0
    trace.write_text("submitted_s,duration_s,gpus,team\n0,100,x,a\n")
    assert "line 2: invalid literal" in cli("sim", str(trace)).output


@pytest.mark.root
def test_run__two_jobs_in_a_lab(tmp_path: Path, lab_name: str) -> None:
    """The second flavor has room where the first has not; the second job waits for the first."""
    (tmp_path / "lab.yaml").write_text(TOPOLOGY.format(name=lab_name))
    (tmp_path / "cluster.yaml").write_text(TWO_FLAVORS)
    state = ("--state", str(tmp_path / "queue.sqlite"))
    said = tmp_path / "said"
    asked = shlex.join([sys.executable, "-m", "netns", "queue", "status", "--json", *state])
    for name, script in (("first", f"[ $RANK != 0 ] || {asked} > {said}"), ("second", "true")):
        job = {"name": name, "ranks": 2, "command": ["sh", "-c", script]}
        (tmp_path / f"{name}.yaml").write_text(json.dumps(job))
        assert srd_lab("queue", "submit", tmp_path / f"{name}.yaml", "--queue", "a/lq", *state).returncode == 0
    with Lab.up(read_topology(tmp_path / "lab.yaml")):
        done = srd_lab_process("queue", "run", tmp_path / "cluster.yaml", "--lab", lab_name, "--until-idle", *state)
        assert done.returncode == 0, done.stderr
    phases = {
        each["name"]: each["phase"] for each in json.loads(srd_lab("queue", "ls", "--all", "--json", *state).stdout)
    }
    assert phases == {"first": "done", "second": "done"}
    (none, both) = json.loads(said.read_text())
    assert [(each["flavor"], each["used"], each["running"]) for each in (none, both)] == [
        ("small", 0, 1),
        ("large", 2, 1),
    ]
    assert done.stdout.index("first: done") < done.stdout.index("second: starts on")
