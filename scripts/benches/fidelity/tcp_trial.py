"""Goodput of kernel TCP over one setting after the other, on one lab.

    python -m scripts.benches.fidelity.tcp_trial ORDERS.json

ORDERS.json: {"name", "fabric", "seconds", "settings": [{"name", "shape"}, ...], "result"}; the goodput of each setting
in Mbit/s is written to the file "result". The lab is h1 - leaf1 - h2; the shape applies to both links down from leaf1,
so to data and ACKs. iperf3 with one stream, cubic on both; the first seconds are left out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from netns.lab.lab import Lab
from netns.netem.shape import Shape
from netns.topology.model import Link, Switch, Topology
from scripts.benches.veth import iperf
from scripts.harness.errors import BenchError
from scripts.harness.two_hosts import TwoHosts
from srd.perf.tcp_socket import CUBIC

OMITTED_S: Final = 3
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
    pair = TwoHosts.of_lab(lab, "h1", "h2")
    return 1e3 * iperf.run(pair, algorithm=CUBIC, seconds=seconds, omit_s=OMITTED_S).gbps


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
