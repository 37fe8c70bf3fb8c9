"""netns.cli.run: a job from its file to its last rank, as a user starts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from netns.backends.kernel.capabilities import missing_netem
from netns.backends.relay.tap import NETNS_DIRECTORY
from netns.cli.run import Finished
from netns.examples import file_named
from netns.inventory.fabric_layers import nodes_of
from netns.lab.lab import Lab
from netns.lab.state import LabDirectory
from netns.placement import Job, place, read_job
from netns.processes import processes_in
from netns.topology.file import read_topology
from tests.netns.cli.srd_lab import srd_lab, srd_lab_process
from tests.patience import PATIENCE_S
from tests.programs import run_to_end

PROJECT = Path(__file__).resolve().parents[3]
CLOS = """
name: {name}
mtu: 1500
clos:
  blocks: 2
  leaves_per_block: 2
  hosts_per_leaf: 2
  aggregations_per_block: 1
  spines: 1
  spine_link: {{delay: 1ms}}
"""
TOLD = """
import json, os
print(json.dumps({"event": "iteration", "iteration": 0, "seconds": 1 + int(os.environ["RANK"])}))
print(os.environ["MASTER_ADDR"], os.environ["LOG"])
"""


@pytest.fixture
def topology(tmp_path: Path, lab_name: str) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLOS.format(name=lab_name))
    return path


def job_file(directory: Path, *, code: str = TOLD, ranks: int = 2, **more: Any) -> Path:
    path = directory / "job.yaml"
    job = {"name": "demo", "ranks": ranks, "command": [sys.executable, "-c", code], "env": {"LOG": "yes"}, **more}
    path.write_text(json.dumps(job))  # JSON is YAML
    return path


def nothing_left(name: str) -> bool:
    return not LabDirectory(name).path.exists() and not list(NETNS_DIRECTORY.glob(f"{name}-*"))


def test_finished__misplaced_ranks_are_listed(topology: Path) -> None:
    job = Job(name="demo", ranks=3, command=("true",))
    placement = place(job, nodes_of(read_topology(topology)))
    here = tuple(placement.hosts)
    finished = Finished("lab", "relay", placement, ("a", "b", "c"), (1, 2, 3), here, (0.5,))
    assert finished.misplaced == []
    assert replace(finished, ran_in=(here[0], "h7", None)).misplaced == [
        f"rank 1 was placed on {here[1]}, but ran on h7",
        f"rank 2 was placed on {here[2]}, but was not seen on any host",
    ]
    assert replace(finished, iterations_s=()).to_dict()["seconds_per_iteration"] is None


@pytest.mark.root
def test_run__on_given_hosts(topology: Path, tmp_path: Path) -> None:
    job = str(job_file(tmp_path))
    done = srd_lab("run", job, "--topology", str(topology), "--hosts", "h5,h2", "--check-placement", "--json")
    assert done.returncode == 0, done.stderr
    assert [(each["host"], each["ran_in"]) for each in json.loads(done.stdout)["ranks"]] == [("h5", "h5"), ("h2", "h2")]
    for hosts, line in (("h5", "--hosts: 1 hosts for 2 ranks of job demo"), ("h5,x", "--hosts: x: lab")):
        refused = srd_lab("run", job, "--topology", str(topology), "--hosts", hosts)
        assert (refused.returncode, line in refused.stderr) == (2, True), refused.stderr


@pytest.mark.root
def test_run__builds_places_runs_and_removes(tmp_path: Path, topology: Path, lab_name: str) -> None:
    done = srd_lab_process(
        "run", job_file(tmp_path, topology={"required": 3}), "--topology", topology, "--check-placement"
    )
    assert done.returncode == 0, done.stderr
    assert nothing_left(lab_name)
    lines = done.stdout.splitlines()
    assert sorted(lines[:2]) == ["[0] 10.0.1.1 yes", "[1] 10.0.1.1 yes"]
    assert lines[2:4] == [
        "job demo: 2 ranks, all in layer 3 leaf1",
        f"lab {lab_name}, {'relay' if missing_netem() else 'kernel'} backend",
    ]
    assert [line.split()[0:3] + line.split()[-1:] for line in lines[5:7]] == [
        ["0", "h1", "10.0.1.1", "h1"],
        ["1", "h2", "10.0.1.2", "h2"],
    ]
    assert lines[7] == "1 iteration: median 2.000 s, fastest 2.000 s, slowest 2.000 s"


@pytest.mark.root
def test_run__in_a_lab_that_is_up_and_as_json(tmp_path: Path, topology: Path, lab_name: str) -> None:
    with Lab.up(read_topology(topology)) as lab:
        done = srd_lab_process(
            "run", job_file(tmp_path, ranks=4), "--lab", lab_name, "--preferred-topology", "3", "--json"
        )
        assert done.returncode == 0, done.stderr
        assert lab.status()["problems"] == []
    result = json.loads(done.stdout)
    assert (result["job"], result["lab"], result["iterations_seconds"]) == ("demo", lab_name, [4.0])
    assert result["shared"]["level"].endswith("network-node-layer-2"), "no rack holds four"
    assert [rank["ran_in"] for rank in result["ranks"]] == [rank["host"] for rank in result["ranks"]]
    assert "[3] 10.0.1.1 yes" in done.stderr


@pytest.mark.root
def test_run__a_rank_fails(tmp_path: Path, topology: Path, lab_name: str) -> None:
    code = "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit('it is broken')\ntime.sleep(600)"
    done = srd_lab_process("run", job_file(tmp_path, code=code), "--topology", topology)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "[1] it is broken",
        "srd-lab: rank 1 on h2 failed with status 1: it is broken",
    ]
    assert nothing_left(lab_name)


@pytest.mark.root
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_run__a_signal_ends_ranks_and_lab(
    tmp_path: Path, topology: Path, lab_name: str, number: signal.Signals, status: int
) -> None:
    file = job_file(tmp_path, code="import time; print('ready', flush=True); time.sleep(600)")
    command = [sys.executable, "-m", "netns", "run", str(file), "--topology", str(topology)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert sorted(process.stdout.readline() for _ in range(2)) == ["[0] ready\n", "[1] ready\n"]
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (status, "srd-lab: interrupted\n")
    assert nothing_left(lab_name)


@pytest.mark.root
def test_run__killed_leaves_a_lab_that_the_next_one_removes(tmp_path: Path, topology: Path, lab_name: str) -> None:
    file = job_file(tmp_path, code="import time; print('ready', flush=True); time.sleep(600)")
    command = [sys.executable, "-m", "netns", "run", str(file), "--topology", str(topology)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
    lab = Lab.find(lab_name)
    give_up_at = time.monotonic() + PATIENCE_S
    while processes_in(lab.netns(host) for host in lab.topology.hosts):
        assert time.monotonic() < give_up_at, "ranks end with their launcher"
    again = srd_lab_process("run", job_file(tmp_path), "--topology", topology)
    assert again.returncode == 0, again.stderr
    assert nothing_left(lab_name)


@pytest.mark.root
@pytest.mark.parametrize(
    ("options", "job", "status", "says"),
    [
        (["--lab", "nope"], {}, 1, "srd-lab: there is no lab nope; labs: "),
        ([], {"command": ["nosuch"]}, 1, "srd-lab: nosuch: no such command"),
        (["--required-topology", "3"], {"ranks": 3}, 1, "srd-lab: job demo: no layer 3 of lab "),
        (["--timeout", "300ms"], {"command": ["sleep", "600"]}, 1, "srd-lab: not done after 0.3 s: rank 0 on h1, "),
    ],
)
def test_run__bad_flow(
    tmp_path: Path, topology: Path, lab_name: str, options: list[str], job: dict[str, Any], status: int, says: str
) -> None:
    where = [] if "--lab" in options else ["--topology", str(topology)]
    done = srd_lab("run", job_file(tmp_path, **job), *where, *options)
    assert (done.returncode, done.stdout) == (status, "")
    assert len(done.stderr.splitlines()) == 1
    assert says in done.stderr
    assert nothing_left(lab_name)


@pytest.mark.root
@pytest.mark.parametrize(
    "options",
    [
        ["--topology", "reference", "--lab", "x"],
        ["--required-topology", "1", "--preferred-topology", "1"],
        ["--timeout", "0"],
    ],
)
def test_run__usage(tmp_path: Path, options: list[str]) -> None:
    done = srd_lab("run", job_file(tmp_path), *options)
    assert done.returncode == 2
    assert done.stderr.startswith("srd-lab: ")
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_run__the_examples_fit_together() -> None:
    """The example of README and docs; scripts/bench placement runs it."""
    job = read_job(file_named("allreduce"))
    placement = place(job, nodes_of(read_topology(file_named("cluster"))))
    assert placement.hosts == ("h1", "h2", "h3", "h4")


@pytest.mark.root
def test_run__an_example_by_name_from_any_directory(tmp_path: Path, lab_name: str) -> None:
    """Outside the checkout, with another python3 first in PATH: that of srd-lab runs the ranks."""
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\nexit 9\n")
    other.chmod(0o755)
    (tmp_path / "small.yaml").write_text(CLOS.format(name=lab_name))
    command = [sys.executable, "-m", "netns", "run", "allreduce", "--topology", "small.yaml", "--json"]
    environment = os.environ | {"PATH": f"{other.parent}:{os.environ['PATH']}", "PYTHONPATH": str(PROJECT)}
    done = run_to_end(command, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["iterations_seconds"]) == 5
