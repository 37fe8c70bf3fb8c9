"""Tail: 64 B request and answer beside a bulk flow of the same two hosts, over four paths of 250 Mbit/s.

The demo's fabric (`netns.topology.model.reference`: MTU 9000, 0.5 ms a link, a buffer of one bandwidth-delay product),
on the kernel backend where this kernel has netem, otherwise on the relay (`relay` 1). The network is the bottleneck:
what the small flow waits for is the queue that the bulk flow builds, and the retransmission of what that queue drops.
SRD's small flow is a second peer of the same endpoints, in plain text. TCP's is a connection of its own beside

- `mptcp`: a bulk flow with one cubic subflow over each spine, where this kernel has MPTCP;
- `cubic`: one bulk flow over the same spine as the small one, as chance would have it in one of four pairs of flows.
  The other three spines stay idle, so this bulk flow has a quarter of the capacity.

In turn within each round. `p999_fabric_ratio`: SRD's p99.9 over TCP's beside the bulk flow that, as SRD's, uses the
whole fabric: `mptcp`, or `cubic` without MPTCP. `p999_cubic_ratio`: over TCP's beside `cubic`.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Final

from netns.lab.lab import Lab
from netns.topology.model import reference
from scripts.benches.cases.latency import SMALL_SIZES, TCP, figures, ours_loaded, round_trips
from scripts.benches.outcome import Round, Wanted, over
from scripts.benches.reference_fabric import RECEIVER, SENDER
from scripts.benches.veth.iperf import IperfFlow
from scripts.harness import perf
from scripts.harness.two_hosts import TwoHosts
from scripts.harness.waiting import wait_until
from srd.compare.cell import allow_subflows
from srd.compare.counters import Reading
from srd.compare.errors import CellError
from srd.perf.tcp_socket import CUBIC, why_unavailable

WANTED: Final = (Wanted("p999_fabric_ratio", "<=", 0.3, over="median"),)
NEEDS: Final = ()
SECONDS: Final = 10.0
"""Some 4,000 round trips beside bulk: the p99.9 is the fourth of them."""
WARM_UP_S: Final = 1.0
"""Time of TCP's bulk flow before the measurement: its slow start is over."""
BULK_PORT: Final = perf.PORT + 1
BEGUN_BYTES: Final = 1_000_000
"""What has crossed links when the bulk flow has begun: more than its handshakes."""
MARGIN_S: Final = 3.0
"""Time of TCP's bulk flow after it, as the processes start at different speeds."""


def measure(number: int, seconds: float) -> Round:
    with Lab.up(reference(name=f"bench-tail-{os.getpid()}")) as lab:
        baselines = {"mptcp": measure_tcp(lab, seconds=seconds, mptcp=True)} if has_mptcp(lab) else {}
        measured = ours_loaded(TwoHosts.of_lab(lab, SENDER, RECEIVER), seconds=seconds)
        ours = figures(measured) | {"bulk_mbps": 1e3 * measured["bulk_gbps"]}
        baselines["cubic"] = measure_tcp(lab, seconds=seconds, mptcp=False)
    whole_fabric = baselines.get("mptcp", baselines["cubic"])
    ours |= over(ours, whole_fabric, {"p999_fabric_ratio": "p999_64b_us"})
    ours |= over(ours, baselines["cubic"], {"p999_cubic_ratio": "p999_64b_us"})
    return Round(number, ours | {"relay": int(lab.backend == "relay")}, baselines)


def has_mptcp(lab: Lab) -> bool:
    """Whether MPTCP can have one subflow over each spine; then it has them from now on."""
    if why_unavailable(algorithm=CUBIC, mptcp=True) is not None:
        return False
    try:
        allow_subflows(lab, SENDER, sends=True)
        allow_subflows(lab, RECEIVER, sends=False)
    except CellError:
        return False
    return True


def measure_tcp(lab: Lab, *, seconds: float, mptcp: bool) -> dict[str, float]:
    """Measure TCP's small flow over the first spine, beside a bulk flow that uses this spine, too."""
    spine = lab.topology.spines[0]
    whole = TwoHosts.of_lab(lab, SENDER, RECEIVER)
    pinned = replace(whole, receiver=lab.pinned_addresses(RECEIVER)[spine])
    protocol = "--mptcp" if mptcp else "--tcp"
    bulk_s = WARM_UP_S + seconds + MARGIN_S
    options = (protocol, "-C", CUBIC, "-B", lab.pinned_addresses(SENDER)[spine], "-t", f"{bulk_s:g}", "--plain")
    before = _sent_bytes(lab)
    with perf.running(whole if mptcp else pinned, "client", *options, bound_s=bulk_s, port=BULK_PORT) as ended:
        wait_until(
            lambda: _sent_bytes(lab) - before >= BEGUN_BYTES, within_s=perf.START_S, missing="there was no bulk flow"
        )
        time.sleep(WARM_UP_S)
        found = round_trips(pinned, *TCP, sizes=SMALL_SIZES, seconds=seconds)
        bulk = IperfFlow.of(ended())
    return found | {"bulk_mbps": 1e3 * bulk.gbps}


def _sent_bytes(lab: Lab) -> int:
    return sum(Reading.take(lab).sent_bytes.values())
