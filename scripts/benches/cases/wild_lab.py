"""Wild, on sockets: beside iperf3's TCP, and outside of one data centre.

A dumbbell with MTU 1500 whose bottleneck has a buffer of one bandwidth-delay product, on the kernel backend where this
kernel has netem, otherwise on the relay (`relay` 1). Two hosts of ours (`srd perf`, which compares every byte), in
plain text with the default settings, and two of TCP's. All figures are those of the case `wild`, which measures the
same in virtual time with models of TCP. So are the bounds, but for the WAN's: hosts take time, too, and kernel TCP has
0.88 of it there.

- `tcp_share_*`, `own_share_*`: what passes the bottleneck for one TCP flow and for one of ours, over half of its rate.
  TCP starts a second after ours; `SETTLING_S` later both are counted for `SHARED_S`, by what arrives at the two
  receiving hosts. `resent_fraction_*`: what ours sent again, from the start on.
- `queue_ms_20ms_path`: what a ping waits beside ours alone: median, less that of the idle path.
- `*_capacity_fraction`, `satellite_fraction`: payload over the capacity for payload, of a transfer with its start:
  60 MB over the WAN (100 Mbit/s, 100 ms), by satellite (20 Mbit/s, 600 ms) and by jitter of 4 ms (100 Mbit/s, 20 ms),
  120 MB by jitter of 2 ms (200 Mbit/s, 10 ms; each way).

Beside them `own_share_bbr` of a cubic flow in our place, and what iperf3's TCP, with cubic and with bbr, moves over the
same links in the time that ours took, rounded up to seconds, its start included.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from netns.lab.lab import Lab
from scripts.benches.outcome import Round, Wanted
from scripts.benches.veth import iperf
from scripts.benches.wild.links import MTU, PACKET_BYTES, PAYLOAD_FRACTION, bottleneck
from scripts.harness import perf
from scripts.harness.errors import BenchError
from scripts.harness.needs import Need, lacks
from scripts.harness.two_hosts import TwoHosts
from scripts.harness.waiting import wait_until
from srd.perf.tcp_socket import BBR, CUBIC
from srd.sim.experiments.scenario import read_scenario

LIMITS: Final = {"wan_capacity_fraction": 0.88}
"""Bounds that differ from those in virtual time."""
WANTED: Final = tuple(
    Wanted(each.figure, each.relation, LIMITS.get(each.figure, each.limit), over="median")
    for each in read_scenario("wild").bounds
)
NEEDS: Final = (
    Need("iperf3", ("tcp_share_*", "own_share_*", "resent_fraction_*")),
    Need("ping", ("queue_ms_20ms_path",)),
)
SECONDS: Final = 0.0
SETTLING_S: Final = 5.0
SHARED_S: Final = 15.0
SHARED_BPS: Final = 100_000_000
SHARED_RTT_S: Final = 0.02
OUR_HOSTS: Final = ("h1", "h3")
TCP_HOSTS: Final = ("h2", "h4")
HEAD_START_S: Final = 1.0
PING_S: Final = 6.0
PING_INTERVAL_S: Final = 0.05
MARGIN_S: Final = 5.0
"""Time that ours goes on for, as processes start at different speeds."""
TCP_FRACTION: Final = (MTU - 52) / (MTU + 14)
"""Payload of TCP as a fraction of a full packet on the wire: less IP's, TCP's and its time stamps' headers."""


@dataclass(frozen=True, slots=True)
class SoloPath:
    """A transfer on a path that ours has for itself."""

    figure: str
    rate_bps: int
    rtt_s: float
    byte_count: int
    jitter_us: float = 0.0
    loss_percent: float = 0.0


PATHS: Final = (
    SoloPath("jitter_capacity_fraction", 200_000_000, 0.01, 120_000_000, jitter_us=2000),
    SoloPath("jitter_20ms_capacity_fraction", SHARED_BPS, SHARED_RTT_S, 60_000_000, jitter_us=4000),
    SoloPath("wan_capacity_fraction", 100_000_000, 0.1, 60_000_000),
    SoloPath("wan_loss_capacity_fraction", 100_000_000, 0.1, 60_000_000, loss_percent=1),
    SoloPath("satellite_fraction", 20_000_000, 0.6, 60_000_000),
)


def measure(number: int, _seconds: float) -> Round:
    ours: dict[str, float] = {}
    baselines: dict[str, dict[str, float]] = {}
    if not lacks("iperf3"):
        for algorithm in iperf.ALGORITHMS:
            ours |= beside(algorithm, seed=number)
        baselines = {CUBIC: {"own_share_bbr": cubic_beside_bbr(seed=number)}, BBR: {}}
    ours |= {} if lacks("ping") else queue(seed=number)
    for path in PATHS:
        rate_bps, seconds = our_transfer(path, seed=number)
        ours[path.figure] = rate_bps / (path.rate_bps * PAYLOAD_FRACTION)
        for algorithm, figures in baselines.items():
            rate_bps = tcp_bps(path, algorithm=algorithm, seconds=seconds, seed=number)
            figures[path.figure] = rate_bps / (path.rate_bps * TCP_FRACTION)
    ours["satellite_ok"] = int(ours["satellite_fraction"] >= 0.7)
    return Round(number, ours, baselines)


@contextmanager
def _lab(path: SoloPath | None = None, *, seed: int) -> Iterator[Lab]:
    """Build the dumbbell of a path; by default the one that is shared."""
    path = path or SoloPath("", SHARED_BPS, SHARED_RTT_S, 0)
    topology = bottleneck(
        rate_bps=path.rate_bps,
        rtt_s=path.rtt_s,
        jitter_us=path.jitter_us,
        loss_percent=path.loss_percent,
        seed=seed,
        name=f"bench-wild-{os.getpid()}",
    )
    with Lab.up(topology) as lab:
        yield lab


@contextmanager
def _our_flow(lab: Lab, *, seconds: float) -> Iterator[list[float]]:
    """Run a flow of ours during the block, which is shorter than `seconds`; the list then has what was sent again.

    That is a fraction of all packets.
    """
    found: list[float] = []
    pair = TwoHosts.of_lab(lab, *OUR_HOSTS)
    with perf.running(pair, "client", "-t", f"{seconds:g}", "--plain", "--verify", bound_s=seconds) as ended:
        yield found
        sent = ended()["end"]["sum_sent"]
        resent = sent["retransmits"]
        found.append(resent / (resent + sent["bytes"] / (PACKET_BYTES * PAYLOAD_FRACTION)))


def _arrived_bytes(lab: Lab) -> dict[str, int]:
    """Return what the bottleneck's far switch has sent to each host so far."""
    counters = lab.counters()
    return {host: counters[f"{host}-right"]["ba"]["bytes"] for host in (OUR_HOSTS[1], TCP_HOSTS[1])}


def beside(algorithm: str, *, seed: int) -> dict[str, float]:
    with _lab(seed=seed) as lab:
        with _our_flow(lab, seconds=HEAD_START_S + SETTLING_S + SHARED_S + MARGIN_S) as found:
            _await_bytes(lab)
            time.sleep(HEAD_START_S)
            ours, theirs = _shares(lab, algorithm=algorithm)
        (resent_fraction,) = found
        return {
            f"tcp_share_{algorithm}": theirs,
            f"own_share_{algorithm}": ours,
            f"resent_fraction_{algorithm}": resent_fraction,
            "relay": int(lab.backend == "relay"),
        }


def cubic_beside_bbr(*, seed: int) -> float:
    """Return the share of a flow of cubic that one of bbr joins."""
    with _lab(seed=seed) as lab:
        seconds = HEAD_START_S + SETTLING_S + SHARED_S + MARGIN_S
        with iperf.running(TwoHosts.of_lab(lab, *OUR_HOSTS), algorithm=CUBIC, seconds=seconds):
            _await_bytes(lab)
            time.sleep(HEAD_START_S)
            own, _ = _shares(lab, algorithm=BBR)
    return own


def _shares(lab: Lab, *, algorithm: str) -> tuple[float, float]:
    """Start a flow of TCP beside one that runs; return both flows' rates over half of the bottleneck's."""
    with iperf.running(TwoHosts.of_lab(lab, *TCP_HOSTS), algorithm=algorithm, seconds=SETTLING_S + SHARED_S):
        time.sleep(SETTLING_S)
        before, started = _arrived_bytes(lab), time.monotonic()
        time.sleep(SHARED_S)
        after, elapsed_s = _arrived_bytes(lab), time.monotonic() - started
    first, joined = (
        8 * (after[host] - before[host]) / elapsed_s / (SHARED_BPS / 2) for host in (OUR_HOSTS[1], TCP_HOSTS[1])
    )
    return first, joined


def _await_bytes(lab: Lab) -> None:
    wait_until(lambda: _arrived_bytes(lab)[OUR_HOSTS[1]] >= 100_000, within_s=perf.START_S, missing="nothing arrived")


def queue(*, seed: int) -> dict[str, float]:
    """Ping beside a flow of ours, and without it."""
    with _lab(seed=seed) as lab:
        idle_ms = ping_ms(lab, seconds=PING_S / 2)
        with _our_flow(lab, seconds=2 * HEAD_START_S + PING_S + MARGIN_S):
            _await_bytes(lab)
            time.sleep(2 * HEAD_START_S)
            beside_ms = ping_ms(lab, seconds=PING_S)
    return {"queue_ms_20ms_path": beside_ms - idle_ms}


def ping_ms(lab: Lab, *, seconds: float) -> float:
    """Return the median of a ping's round trips between the other two hosts. Raises BenchError without any answer."""
    pair = TwoHosts.of_lab(lab, *TCP_HOSTS)
    return pair.ping_ms(count=round(seconds / PING_INTERVAL_S), interval_s=PING_INTERVAL_S)


def our_transfer(path: SoloPath, *, seed: int) -> tuple[float, float]:
    """Return the rate of a transfer of ours, and its time from the first posting to the last completion."""
    with _lab(path, seed=seed) as lab:
        pair, bound_s = TwoHosts.of_lab(lab, *OUR_HOSTS), 10 * 8 * path.byte_count / path.rate_bps
        options = ("-n", str(path.byte_count), "-i", "0", "--plain", "--verify")
        end = perf.measure(pair, "client", *options, bound_s=bound_s)["end"]
    sent, received = end["sum_sent"], end["sum_received"]
    if received["bytes"] != sent["bytes"]:
        raise BenchError(f"{path.figure}: {received['bytes']} of {sent['bytes']} bytes arrived")
    return float(sent["bits_per_second"]), float(sent["seconds"])


def tcp_bps(path: SoloPath, *, algorithm: str, seconds: float, seed: int) -> float:
    """Return TCP's rate over a time that begins with its start."""
    with _lab(path, seed=seed) as lab:
        pair = TwoHosts.of_lab(lab, *TCP_HOSTS)
        return iperf.run(pair, algorithm=algorithm, seconds=math.ceil(seconds), omit_s=0).gbps * 1e9
