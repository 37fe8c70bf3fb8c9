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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from netns.lab.lab import Lab
from netns.topology.model import reference
from scripts.benches.cases.clean import START_S, WORKER
from scripts.benches.cases.latency import SMALL_SIZES, figures, ours_latency, tcp_latency
from scripts.benches.outcome import Figures, Round, Wanted
from scripts.benches.reference_fabric import RECEIVER, SENDER
from scripts.harness.client_server import python, running
from scripts.harness.veth_pair import SENDER as SENDING_END
from srd.compare.errors import CellError
from srd.compare.subflows import allow_subflows
from srd.perf.tcp_socket import CUBIC, why_unavailable

WANTED: Final = (Wanted("p999_fabric_ratio", "<=", 0.3, over="median"),)
NEEDS: Final = ()
SECONDS: Final = 10.0
"""Some 4,000 round trips beside bulk: the p99.9 is the fourth of them."""
WARM_UP_S: Final = 1.0
"""Time of TCP's bulk flow before the measurement: its slow start is over."""
MARGIN_S: Final = 3.0
"""Time of TCP's bulk flow after it, as the processes start at different speeds."""


@dataclass(frozen=True, slots=True)
class LabPair:
    """The fabric's two hosts, as the workers' harness takes them."""

    lab: Lab
    receiver: str
    """The address that clients connect to."""

    def command(self, node: str, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs `argv` at one end."""
        return self.lab.command(SENDER if node == SENDING_END else RECEIVER, argv)


def rounds(count: int, seconds: float) -> Iterator[Round]:
    """Make `count` rounds."""
    with Lab.up(reference(name=f"bench-tail-{os.getpid()}")) as lab:
        multipath = has_mptcp(lab)
        for number in range(count):
            baselines = {"mptcp": measure_tcp(lab, seconds=seconds, mptcp=True)} if multipath else {}
            measured = ours_latency(
                LabPair(lab, lab.address(RECEIVER)), "--plain", sizes=SMALL_SIZES, seconds=seconds, loaded=True
            )
            ours = figures(measured) | {"bulk_mbps": 1e3 * measured["bulk_gbps"]}
            baselines["cubic"] = measure_tcp(lab, seconds=seconds, mptcp=False)
            ours |= ratios(ours, baselines) | {"relay": int(lab.backend == "relay")}
            yield Round(number + 1, ours, baselines)


def ratios(ours: Figures, baselines: Mapping[str, Figures]) -> dict[str, float]:
    """Return SRD's p99.9 over the baselines'."""
    whole_fabric = baselines.get("mptcp", baselines["cubic"])
    return {
        "p999_fabric_ratio": ours["p999_64b_us"] / whole_fabric["p999_64b_us"],
        "p999_cubic_ratio": ours["p999_64b_us"] / baselines["cubic"]["p999_64b_us"],
    }


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
    pinned = LabPair(lab, lab.pinned_addresses(RECEIVER)[spine])
    options = ["--mptcp"] if mptcp else []
    bulk = LabPair(lab, lab.address(RECEIVER)) if mptcp else pinned
    bind = ["--bind", lab.pinned_addresses(SENDER)[spine]]
    bulk_s = str(WARM_UP_S + seconds + MARGIN_S)
    with running(
        bulk,
        server=python(WORKER, "tcp-bulk-receive", bulk.receiver, *options),
        client=lambda host, port: python(
            WORKER, "tcp-bulk-send", host, str(port), "--seconds", bulk_s, *bind, *options
        ),
    ) as ended:
        time.sleep(WARM_UP_S)
        found = figures(tcp_latency(pinned, sizes=SMALL_SIZES, seconds=seconds))
        received, _ = ended(START_S)
    return found | {"bulk_mbps": 1e3 * received["gbps"]}
