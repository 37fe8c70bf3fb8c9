"""Goodput of kernel TCP over one setting after the other, on one lab.

    python -m scripts.benches.fidelity.tcp_trial ORDERS.json

ORDERS.json: {"name", "fabric", "seconds", "settings": [{"name", "shape"}, ...], "result"}; the goodput of each setting
in Mbit/s is written to the file "result". The lab is h1 - leaf1 - h2; the shape applies to both links down from leaf1,
so to data and ACKs. iperf3 with one stream, cubic on both; the first seconds are left out.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from netns.lab.lab import Lab
from netns.netem.shape import Shape
from netns.programs import ending_with_us
from netns.topology.model import Link, Switch, Topology
from scripts.harness.errors import BenchError

OMITTED_S: Final = 3
LISTENING_S: Final = 1.5
MTU: Final = 1500


def topology(name: str) -> Topology:
    """Return a lab whose links down to both hosts can be shaped."""
    return Topology(
        name=name,
        hosts=("h1", "h2"),
        switches=(Switch("leaf1", "leaf"),),
        links=(Link("leaf1", "h1", Shape()), Link("leaf1", "h2", Shape())),
        mtu=MTU,
    )


def carried_mbps(lab: Lab, shape: Shape, *, seconds: int) -> float:
    """Return the goodput of one stream from h1 to h2. Raises BenchError."""
    lab.reshape("leaf1-h2", ab=shape)
    # ACKs have the delay and a large queue, but no loss, so that only one direction's loss is measured.
    lab.reshape("leaf1-h1", ab=replace(shape, loss_percent=0, loss_model=None, rate_bps=0, limit_packets=10_000))
    with subprocess.Popen(
        ending_with_us(lab.command("h2", ["iperf3", "-s", "-1"])), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            time.sleep(LISTENING_S)
            command = ["iperf3", "-c", lab.address("h2"), "-C", "cubic", "-t", str(seconds), "-O", str(OMITTED_S), "-J"]
            argv = ending_with_us(lab.command("h1", command))
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
        finally:
            server.kill()
    report = json.loads(done.stdout or "{}")
    if done.returncode or "error" in report:
        raise BenchError(f"iperf3: {report.get('error') or done.stderr.strip() or done.returncode}")
    return float(report["end"]["sum_received"]["bits_per_second"]) / 1e6


def main(orders: Mapping[str, Any]) -> None:
    """Run the trials of ORDERS.json."""
    with Lab.up(topology(orders["name"]), backend=orders["fabric"]) as lab:
        found = {
            setting["name"]: carried_mbps(lab, Shape.from_dict(setting["shape"]), seconds=orders["seconds"])
            for setting in orders["settings"]
        }
        status = lab.relay_status()
        if status is not None and status["tap_drops"]:
            raise BenchError(f"the relay lost {status['tap_drops']} packets; the host is too busy")
    Path(orders["result"]).write_text(json.dumps(found))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
