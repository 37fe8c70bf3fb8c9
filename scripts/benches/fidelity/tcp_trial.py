"""Goodput of kernel TCP over one setting after the other, on one lab; a process of its own, as `trial` is.

The lab is h1 - leaf1 - h2; the shape applies to both links down from leaf1, so to data and ACKs. iperf3 with one
stream, cubic on both; the first seconds are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from netns.backends.choice import Wanted
from netns.base.output import emit
from netns.lab.lab import Lab
from netns.netem.shape import Shape
from scripts.benches.fabrics import one_switch
from scripts.benches.veth import iperf
from scripts.harness.drops import require_no_relay_drops
from scripts.harness.two_hosts import TwoHosts
from srd.perf.tcp_socket import CUBIC

OMITTED_S: Final = 3
MTU: Final = 1500


def carried_mbps(lab: Lab, shape: Shape, *, seconds: int) -> float:
    lab.reshape("leaf1-h2", ab=shape)
    # ACKs have the delay and a large queue, but no loss, so that only one direction's loss is measured.
    lab.reshape("leaf1-h1", ab=replace(shape, loss_percent=0, loss_model=None, rate_bps=0, limit_packets=10_000))
    pair = TwoHosts.of_lab(lab, "h1", "h2")
    return 1e3 * iperf.run(pair, algorithm=CUBIC, seconds=seconds, omit_s=OMITTED_S).gbps


def run_settings(*, name: str, fabric: Wanted, seconds: int, settings: Mapping[str, Mapping[str, Any]]) -> None:
    """Emit the goodput with each shape, in Mbit/s."""
    with Lab.up(one_switch(name=name, mtu=MTU, to_h1=Shape()), backend=fabric) as lab:
        found = {each: carried_mbps(lab, Shape.from_dict(fields), seconds=seconds) for each, fields in settings.items()}
        require_no_relay_drops(lab)
    emit("carried", mbps=found)
