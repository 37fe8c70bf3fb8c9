"""Relay: packet rate of the relay backend through one shaped link, and lateness of its packets.

h1 - leaf1 - h2, shaped from leaf1 to h2 (0.5 ms, 20 Gbit/s); h1 sends paced datagrams of 1,000 bytes, 32 per system
call. `packets_per_second`: the highest of a series of rates, one second each, at which neither the relay nor the queue
of one of its TAPs lost a packet. `mean_late_us`: time from a packet's departure time until it was written, at half the
required rate. `cpu_us_per_packet`: the relay's CPU time at that rate. `overloaded_drops`: packets that it lost, and
counted, one step above the highest rate.
"""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from typing import Final

from netns.backends.kernel.netlink import in_namespace
from netns.lab.lab import Lab
from netns.netem.shape import Shape
from scripts.benches.fabrics import one_switch
from scripts.benches.outcome import Round, Wanted
from scripts.harness.errors import BenchError

WANTED_PER_S: Final = 100_000
WANTED: Final = (Wanted("packets_per_second", ">=", WANTED_PER_S), Wanted("mean_late_us", "<=", 200))
LADDER: Final = tuple(round(60_000 * 1.1**step) for step in range(14))
STEP_S: Final = 1.0
SETTLE_S: Final = 0.2
SHAPE: Final = Shape(delay_us=500, rate_bps=20_000_000_000, limit_packets=100_000)
PAYLOAD_BYTES: Final = 1000
BATCH: Final = 32
PORT: Final = 7011
UDP_SEGMENT: Final = 103  # linux/udp.h
LINK: Final = "leaf1-h2"


@dataclass(frozen=True, slots=True)
class Step:
    offered: int
    carried: int
    drops: int
    seconds: float
    mean_late_us: float
    cpu_us_per_packet: float

    @property
    def clean(self) -> bool:
        return not self.drops and self.carried == self.offered


def measure(seed: int) -> Round:
    topology = one_switch(name=f"bench-relay-{os.getpid()}", mtu=1500, to_h2=SHAPE, seed=seed)
    with Lab.up(topology, backend="relay") as lab:
        _step(lab, rate=WANTED_PER_S // 2, seconds=STEP_S)  # warm-up
        half = _step(lab, rate=WANTED_PER_S // 2, seconds=2 * STEP_S)
        if not half.clean:
            raise BenchError(f"{half.offered - half.carried} of {half.offered} packets lost at half the rate wanted")
        best, above = 0.0, 0
        for rate in LADDER:
            step = _step(lab, rate=rate, seconds=STEP_S)
            if not step.clean:
                above = step.drops
                break
            best = step.carried / step.seconds
    return Round(
        seed,
        {
            "packets_per_second": best,
            "mean_late_us": half.mean_late_us,
            "cpu_us_per_packet": half.cpu_us_per_packet,
            "overloaded_drops": above,
        },
    )


def _step(lab: Lab, *, rate: int, seconds: float) -> Step:
    before, counters = _account(lab), lab.counters()[LINK]["ab"]
    offered, elapsed_s = _send(lab, rate=rate, seconds=seconds)
    time.sleep(SETTLE_S)
    after, carried = _account(lab), lab.counters()[LINK]["ab"]["packets"] - counters["packets"]
    late_us, cpu_s, drops = (now - then for now, then in zip(after, before, strict=True))
    each = max(carried, 1)
    return Step(offered, carried, int(drops), elapsed_s, late_us / each, cpu_s * 1e6 / each)


def _account(lab: Lab) -> tuple[float, float, float]:
    """Return sums since the relay's start: lateness in us, CPU time in s, packets lost by the host."""
    status = lab.relay_status()
    if status is None:
        raise BenchError("the lab has no relay")
    return status["late_total_us"], status["cpu_seconds"], status["tap_drops"]


def _send(lab: Lab, *, rate: int, seconds: float) -> tuple[int, float]:
    """Send at `rate` packets per second; return the number of packets and the duration."""
    target = (lab.address("h2"), PORT)
    batches = round(rate * seconds / BATCH)
    payload = bytes(PAYLOAD_BYTES * BATCH)
    sink, sender = (
        in_namespace(lab.netns(host), lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for host in ("h2", "h1")
    )
    with sink, sender:
        sink.bind(target)
        sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, PAYLOAD_BYTES)
        started_at = time.monotonic()
        for batch in range(batches):
            early_s = started_at + batch * BATCH / rate - time.monotonic()
            if early_s > 0:
                time.sleep(early_s)
            sender.sendto(payload, target)
        return batches * BATCH, time.monotonic() - started_at
