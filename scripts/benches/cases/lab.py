"""Lab: time to create and delete a lab of 16 hosts, 4 leaves and 4 spines, and recovery after a crash.

Links between switches are shaped (0.5 ms, 250 Mbit/s), on the backend that this kernel supports. `up_seconds` and
`down_seconds` are medians of five. Then, 20 times, a process that creates a lab is killed (SIGKILL) at a random time
(from the seed) within the usual duration, and the lab is created again. `left_over`: namespaces, records and relays of
the lab that remain after that.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Final

from netns.backends.relay.tap import NETNS_DIRECTORY
from netns.errors import BackendError
from netns.lab.lab import Lab
from netns.lab.state import LabDirectory, recorded_labs
from netns.netem.shape import Shape
from netns.programs import ending_with_us
from netns.topology.model import Topology, leaf_spine
from scripts.benches.outcome import Round, Wanted
from scripts.harness.steps import step

WANTED: Final = (Wanted("up_seconds", "<", 3), Wanted("down_seconds", "<", 2), Wanted("left_over", "<=", 0))
TIMES: Final = 5
CRASHES: Final = 20
SHAPE: Final = Shape(delay_us=500, rate_bps=250_000_000)
CHILD: Final = """
import sys, time
from netns.lab.lab import Lab
from scripts.benches.cases.lab import topology
with Lab.up(topology(sys.argv[1])):
    time.sleep(60)
"""


def topology(name: str) -> Topology:
    return leaf_spine(name=name, leaves=4, spines=4, hosts_per_leaf=4, shape=SHAPE)


def measure(seed: int) -> Round:
    name = f"bench-lab-{os.getpid()}"
    ups, downs = [], []
    for number in range(TIMES):
        step(f"up and down {number + 1} of {TIMES}", fraction=number / (TIMES + CRASHES))
        started_at = time.monotonic()
        lab = Lab.up(topology(name))
        up_at = time.monotonic()
        lab.down()
        ups.append(up_at - started_at)
        downs.append(time.monotonic() - up_at)
    rng = random.Random(seed)  # noqa: S311 - times, not secrets
    for number in range(CRASHES):
        step(f"crash {number + 1} of {CRASHES}", fraction=(TIMES + number) / (TIMES + CRASHES))
        _crash(name, after_s=rng.uniform(0, 2 * median(ups)))
        _up_again(name).down()
    return Round(
        seed,
        {
            "up_seconds": median(ups),
            "down_seconds": median(downs),
            "slowest_up_seconds": max(ups),
            "crashes": CRASHES,
            "left_over": len(_left_of(name)),
        },
    )


def _crash(name: str, *, after_s: float) -> None:
    """Kill a process that is creating the lab."""
    child = subprocess.Popen(ending_with_us([sys.executable, "-c", CHILD, name]))
    try:
        time.sleep(after_s)
    finally:
        child.kill()
        child.wait()


def _up_again(name: str) -> Lab:
    """Create the lab after a crash; if the child had finished, the complete lab exists, which is no crash."""
    try:
        return Lab.up(topology(name))
    except BackendError:
        Lab.find(name).down()
        return Lab.up(topology(name))


def _left_of(name: str) -> set[str]:
    relays, spec = set(), str(LabDirectory(name).relay_spec).encode()
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if spec in arguments:
            relays.add(f"relay {entry.parent.name}")
    namespaces = {path.name for path in NETNS_DIRECTORY.glob(f"{name}-*")}
    return namespaces | relays | {f"record {lab}" for lab in recorded_labs() if lab == name}
