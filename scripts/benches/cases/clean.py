"""Clean: bulk data over a veth pair without loss: SRD in plain text, and iperf3.

MTU 9000 and 1500, segmentation offload on and off (see harness/two_hosts.py), one flow, in turn within each round.
iperf3 runs with TCP cubic and with bbr. `*_gbps` is payload that arrived; `*_cpu_s_per_gb` is the CPU time of both
processes, user and system, per 10^9 bytes. `tcp_ratio_*`: SRD over the faster of iperf3's two TCPs of the same round;
`cpu_per_gb_ratio_*`: SRD over that same TCP. SRD is `srd perf client`, which compares every byte of a flow of 64 MiB
before the one that is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from scripts.benches.outcome import Figures, Round, Wanted, over
from scripts.benches.veth import iperf
from scripts.harness.drops import no_drops
from scripts.harness.needs import Need, lacks
from scripts.harness.two_hosts import TwoHosts, veth_pair

WANTED: Final = (
    Wanted("tcp_ratio_mtu9000", ">=", 1.15, over="median"),
    Wanted("tcp_ratio_mtu1500", ">=", 0.9, over="median"),
    Wanted("tcp_ratio_mtu9000_nogso", ">=", 0.9, over="median"),
    Wanted("tcp_ratio_mtu1500_nogso", ">=", 0.7, over="median"),
    Wanted("cpu_per_gb_ratio_mtu9000", "<=", 0.95, over="median"),
)
NEEDS: Final = (Need("iperf3", ("tcp_ratio_*", "cpu_per_gb_ratio_*")),)
SECONDS: Final = 2.0
LINKS: Final = {
    "mtu9000": (9000, True),
    "mtu1500": (1500, True),
    "mtu9000_nogso": (9000, False),
    "mtu1500_nogso": (1500, False),
}
"""MTU, and whether segments are offloaded."""
OURS: Final = "ours"


def measure(number: int, seconds: float) -> Round:
    found: dict[str, dict[str, float]] = {}
    for link, (mtu, offload) in LINKS.items():
        with veth_pair(mtu=mtu, offload=offload) as two:
            for name, flow in _flows(two, seconds=seconds):
                found.setdefault(name, {}).update(flow.named(f"{link}_{{}}"))
    ours = found.pop(OURS)
    for link in LINKS:
        ours |= ratios(ours, found, link=link)
    return Round(number, ours, found)


def ratios(ours: Figures, baselines: dict[str, dict[str, float]], *, link: str) -> dict[str, float]:
    gbps = f"{link}_gbps"
    tcp = max(baselines.values(), key=lambda figures: figures[gbps], default={})
    return over(ours, tcp, {f"tcp_ratio_{link}": gbps, f"cpu_per_gb_ratio_{link}": f"{link}_cpu_s_per_gb"})


def _flows(two: TwoHosts, *, seconds: float) -> Iterator[tuple[str, iperf.IperfFlow]]:
    runs: dict[str, Callable[[], iperf.IperfFlow]] = {OURS: partial(iperf.ours, two, seconds=seconds, plain=True)}
    for algorithm in () if lacks("iperf3") else iperf.ALGORITHMS:
        runs[f"tcp_{algorithm}"] = partial(iperf.run, two, algorithm=algorithm, seconds=seconds)
    for name, run in runs.items():
        with no_drops(two.namespaces, during=name):
            flow = run()
        yield name, flow
