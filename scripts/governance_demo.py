"""Two teams share a lab of 16 hosts by quota: one lends, the other borrows, and gives back.

Each team may use 8 hosts. `research` trains on all 16, so it borrows 8 of `serving`. Then `serving` submits a job of 4
ranks with a higher priority, to be under one leaf switch: its quota is taken back, the training saves its step and
ends, the job runs, and the training resumes at the step it had saved. All of it is `srd-lab queue`; what is said here
is read from its records, and anything else than this course of events is exit status 1.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from netns.examples import file_named
from netns.inventory.fabric_layers import nodes_of
from netns.inventory.layers import level_named
from netns.lab.lab import Lab
from netns.programs import ending_with_us
from netns.topology.file import read_topology
from scripts.harness.errors import BenchError
from scripts.harness.program import program
from scripts.harness.waiting import wait_until

TIMEOUT_S: Final = 100.0
STEPS: Final = 60
STEP_S: Final = 0.1

TRAINING: Final = f"""
name: training
ranks: 16
command:
- sh
- -c
- |
  at="$CHECKPOINT_DIR/step.$RANK"; step=$(cat "$at" 2>/dev/null || echo 0)
  [ "$RANK" = 0 ] && echo "starts at step $step"
  trap 'echo $step > "$at"; exit 3' TERM
  while [ "$step" -lt {STEPS} ]; do sleep {STEP_S}; step=$((step + 1)); done
  [ "$RANK" = 0 ] && echo "has done {STEPS} steps" || true
"""
SERVING: Final = """
name: inference
ranks: 4
topology: {required: 3}
command: [sh, -c, 'echo "rank $RANK serves"; sleep 1']
"""
_QUEUE: Final = """
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {{name: {team}}}
spec:
  cohortName: lab
  namespaceSelector: {{}}
  resourceGroups:
  - coveredResources: [pods]
    flavors: [{{name: hosts, resources: [{{name: pods, nominalQuota: 8}}]}}]
  preemption: {{withinClusterQueue: LowerPriority, reclaimWithinCohort: Any}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {{name: jobs, namespace: {team}}}
spec: {{clusterQueue: {team}}}
"""
CLUSTER: Final = (
    """
{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: hosts}, spec: {}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: WorkloadPriorityClass, metadata: {name: high}, value: 100}
"""
    + _QUEUE.format(team="research")
    + _QUEUE.format(team="serving")
)


class _Demo:
    def __init__(self, directory: Path, lab: Lab) -> None:
        self._directory, self._lab = directory, lab
        for name, content in (("cluster", CLUSTER), ("training", TRAINING), ("inference", SERVING)):
            (directory / f"{name}.yaml").write_text(content)
        self._environment = os.environ | {"SRD_LAB_QUEUE": str(directory / "queue.sqlite")}
        self._leaf_of = {node.name: node.labels[level_named("3")] for node in nodes_of(lab.topology)}

    def queue(self, *words: str) -> str:
        command = [sys.executable, "-m", "netns", "queue", *words]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BenchError(f"srd-lab queue {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def jobs(self) -> dict[str, Any]:
        return {each["name"]: each for each in json.loads(self.queue("ls", "--all", "--json"))}

    def until(
        self, what: str, condition: Callable[[dict[str, Any]], bool], server: subprocess.Popen[str]
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def is_so() -> bool:
            _expect(server.poll() is None, "the queue runs")
            found.update(self.jobs())
            return condition(found)

        wait_until(is_so, within_s=TIMEOUT_S, missing=f"it was not so that {what}")
        return found

    def play(self) -> None:
        command = ["-m", "netns", "queue", "run", str(self._directory / "cluster.yaml"), "--lab", self._lab.name]
        server = subprocess.Popen(
            ending_with_us([sys.executable, *command]), env=self._environment, stdout=None, text=True
        )
        try:
            self._course(server)
        finally:
            server.terminate()
            server.wait()

    def _course(self, server: subprocess.Popen[str]) -> None:
        self.queue("submit", str(self._directory / "training.yaml"), "--queue", "research/jobs")
        found = self.until("training runs", lambda jobs: jobs["training"]["phase"] == "running", server)
        _expect(len(set(found["training"]["hosts"])) == 16, "training has all 16 hosts")
        print("== research has a quota of 8 hosts and trains on 16: it borrows 8 that serving lends", flush=True)
        print(self.queue("status"), end="", flush=True)
        time.sleep(1.0)  # a second of training, to have something to save
        inference = str(self._directory / "inference.yaml")
        self.queue("submit", inference, "--queue", "serving/jobs", "--priority", "high")
        found = self.until("inference runs", lambda jobs: jobs["inference"]["phase"] == "running", server)
        leaves = {self._leaf_of[host] for host in found["inference"]["hosts"]}
        _expect(len(leaves) == 1, f"inference is under one leaf: {leaves}")
        print(f"== serving has taken its quota back; inference runs under {leaves.pop()} alone", flush=True)
        print(self.queue("why", "training"), end="", flush=True)
        found = self.until("training is done", lambda jobs: jobs["training"]["phase"] == "done", server)
        saved = {int(file.read_text()) for file in self._directory.glob("*.jobs/1/step.*")}
        _expect(found["training"]["restarts"] == 1, "training was preempted once")
        _expect(len(saved) > 0 and min(saved) > 0, f"training had saved its step: {saved}")
        _expect(found["inference"]["phase"] == "done", "inference is done")
        print(f"== training has resumed at step {min(saved)} and is done", flush=True)


def _expect(condition: bool, what: str) -> None:  # noqa: FBT001 - an assertion
    if not condition:
        raise BenchError(f"not so: {what}")


@program("demo-governance")
def command() -> None:
    """Let two teams share a lab of 16 hosts: one lends, the other borrows, and gives back."""
    started_at = time.monotonic()
    topology = read_topology(file_named("cluster"))
    with tempfile.TemporaryDirectory() as directory, Lab.up(topology) as lab:
        _Demo(Path(directory), lab).play()
    print(f"all as it should be, in {time.monotonic() - started_at:.0f} s")
