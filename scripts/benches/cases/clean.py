"""Clean: bulk data over a veth pair without loss: SRD in plain text, and iperf3.

MTU 9000 and 1500, segmentation offload on and off (see veth/veth_pair.py), one flow, in turn within each round.
iperf3 runs with TCP cubic and with bbr. `*_gbps` is payload that arrived; `*_cpu_s_per_gb` is the CPU time of both
processes, user and system, per 10^9 bytes. `tcp_ratio_*`: SRD over the faster of iperf3's two TCPs of the same round;
`cpu_per_gb_ratio_*`: SRD over that same TCP. SRD's data is checked byte by byte between the timed turns
(veth/worker/bulk.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from scripts.benches.outcome import Figures, Round, Wanted
from scripts.benches.veth import iperf
from scripts.harness.client_server import python, run_both
from scripts.harness.drops import Drops
from scripts.harness.errors import BenchError
from scripts.harness.needs import Need, lacks
from scripts.harness.veth_pair import VethPair, veth_pair

WANTED: Final = (
    Wanted("tcp_ratio_mtu9000", ">=", 1.15, over="median"),
    Wanted("tcp_ratio_mtu1500", ">=", 0.9, over="median"),
    Wanted("tcp_ratio_mtu9000_nogso", ">=", 0.9, over="median"),
    Wanted("tcp_ratio_mtu1500_nogso", ">=", 0.7, over="median"),
    Wanted("cpu_per_gb_ratio_mtu9000", "<=", 0.95, over="median"),
)
NEEDS: Final = (Need("iperf3", ("tcp_ratio_*", "cpu_per_gb_ratio_*")),)
SECONDS: Final = 2.0
LINKS: Final = ((9000, True), (1500, True), (9000, False), (1500, False))
START_S: Final = 40.0
"""Additional time of the processes: to start, and to make and check their data."""
WORKER: Final = "scripts.benches.veth.worker"
OURS: Final = "ours"


def rounds(count: int, seconds: float) -> Iterator[Round]:
    """Make `count` rounds of all links and all contestants."""
    for number in range(count):
        yield _round(number + 1, seconds)


def _round(number: int, seconds: float) -> Round:
    found: dict[str, dict[str, float]] = {}
    for mtu, offload in LINKS:
        link = f"mtu{mtu}" if offload else f"mtu{mtu}_nogso"
        with veth_pair(mtu=mtu, offload=offload) as two:
            for name, flow in _flows(two, seconds=seconds):
                figures = {f"{link}_gbps": flow.gbps, f"{link}_cpu_s_per_gb": flow.cpu_s_per_gb}
                found.setdefault(name, {}).update(figures)
    ours = found.pop(OURS)
    for mtu, offload in LINKS:
        ours |= ratios(ours, found, link=f"mtu{mtu}" if offload else f"mtu{mtu}_nogso")
    return Round(number, ours, found)


def ratios(ours: Figures, baselines: dict[str, dict[str, float]], *, link: str) -> dict[str, float]:
    """Return SRD's figures over those of the baselines that there are, on one link."""
    gbps, cpu = f"{link}_gbps", f"{link}_cpu_s_per_gb"
    if not baselines:
        return {}
    tcp = max(baselines.values(), key=lambda figures: figures[gbps])
    return {f"tcp_ratio_{link}": ours[gbps] / tcp[gbps], f"cpu_per_gb_ratio_{link}": ours[cpu] / tcp[cpu]}


def _flows(two: VethPair, *, seconds: float) -> Iterator[tuple[str, iperf.Flow]]:
    """Run the contestants, one after the other."""
    runs: dict[str, Callable[[], iperf.Flow]] = {OURS: partial(ours_flow, two, seconds=seconds, plain=True)}
    for algorithm in () if lacks("iperf3") else iperf.ALGORITHMS:
        runs[f"tcp_{algorithm}"] = partial(iperf.run, two, algorithm=algorithm, seconds=seconds)
    for name, run in runs.items():
        before = Drops.read(two.namespaces)
        flow = run()
        Drops.read(two.namespaces).require_none_since(before, during=name)
        yield name, flow


def ours_flow(two: VethPair, *, seconds: float, plain: bool) -> iperf.Flow:
    """Run the SRD flow, in plain text or encrypted.

    Raises BenchError for a damaged byte, or a datagram that a host dropped.
    """
    options = ["--plain"] if plain else []
    received, sent = run_both(
        two,
        server=python(WORKER, "bulk-receive", two.receiver, *options),
        client=lambda host, port: python(WORKER, "bulk-send", host, str(port), "--seconds", str(seconds), *options),
        bound_s=START_S + 5 * seconds,
    )
    if not received["intact"]:
        raise BenchError("ours: the receiver found other bytes than were sent")
    if dropped := received["dropped"] + sent["dropped"]:
        raise BenchError(f"ours: the hosts dropped {dropped} datagrams (full socket buffers, or no memory): void")
    cpu_s = received["cpu_s"] + sent["cpu_s"]
    return iperf.Flow(8 * sent["bytes"] / sent["seconds"] / 1e9, cpu_s / (sent["bytes"] / 1e9))
