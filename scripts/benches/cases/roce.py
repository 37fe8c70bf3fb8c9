"""RoCE: with PFC, with DCQCN, IRN and TCP as models, and SRD's cores, on switches with the same memory (docs/roce.md).

Leaf-spine fabrics of 100 Gbit/s and 1 us a link. Each transport has the switches that it is made for: those of RoCE
pause, the others drop, DCTCP's and DCQCN's mark; the dynamic threshold is an eighth of the free memory for all. The
scenarios are those of srd/sim/roce/scenarios.py. Figures:

- `srd_over_roce_p99_incast`: 48 x 2 MB to one host, the 99th percentile of SRD's completion times over RoCE's. PFC is
  at its best there: the port is never idle, and there is nobody else.
- `victim_slowdown_*`: a flow of 10 MB that shares no congested link with an incast of 16, over its time alone. RoCE's
  is 1 if the victim's hash takes it to a spine that carries none of the incast (seed 4), so it has no bound.
  `near_victim_slowdown_srd`: a flow that shares the links down to the incast's leaf.
- `permutation_128_median_over_ideal`: SRD, 1 MB each; `roce_permutation_128_...`: RoCE, whose flows collide by ECMP.
- `deadlock_shown`: 1 if RoCE locks up for good in the ring; `tree_deadlock_shown`: in the tree that lost a link, where
  the hashes decide whether packets go in loops (not with seed 4). `watchdog_frees`: 1 if SONiC's watchdog ends the
  cycle of the ring. `srd_deadlocks`: flows of SRD that do not end in either.
- `lossless_drops`: packets that pausing switches had no room for. It is 0 while headroom is right.
- `goodput_1pct_loss_*`: one flow of 20 MB over a link that loses 1 %, over the line rate.
- `paper_error`: the largest deviation from what arithmetic says: the last flow of an incast over a port that is never
  idle, and go-back-N's goodput 1 / (1 + P W) at a loss of 0.1 %.

It is a program, and no scenario's file: a slow host, loops of packets and the watchdog are of switches that pause,
which `srd sim roce` plays by the same functions; a file has the links of netem.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from netns.backends.virtual.lossless.profile import WatchdogProfile
from scripts.benches.outcome import Round
from srd.sim.models.transports import roce_framing
from srd.sim.roce import scenarios
from srd.sim.roce.fabrics import LINK_BPS, LINK_US
from srd.sim.roce.play import CONTENDERS, Contender

BOUNDS: Final = (
    "srd_over_roce_p99_incast <= 1.2",
    "victim_slowdown_srd <= 1.1",
    "near_victim_slowdown_srd <= 1.31",
    "permutation_128_median_over_ideal <= 1.5",
    "deadlock_shown >= 1",
    "watchdog_frees >= 1",
    "srd_deadlocks <= 0",
    "lossless_drops <= 0",
    "goodput_1pct_loss_roce <= 0.85",
    "goodput_1pct_loss_srd >= 0.9",
    "paper_error <= 0.15",
)
INCAST: Final = ("roce", "dcqcn", "dcqcn-firmware", "irn", "cubic", "dctcp", "srd")
SENDERS: Final = 48
SIZE_BYTES: Final = 2_000_000
LOSS_PERCENT: Final = 0.1


def measure(seed: int, _seconds: float) -> Round:
    """One round: all figures; `baselines`: of each transport by itself."""
    beside = {name: _of(CONTENDERS[name], seed=seed) for name in INCAST}
    ours, theirs = beside["srd"], beside["roce"]
    ring = scenarios.ring_deadlock(CONTENDERS["roce"], seed=seed)
    tree = scenarios.tree_deadlock(CONTENDERS["roce"], seed=seed)
    watched = replace(CONTENDERS["roce"], watchdog=WatchdogProfile())
    freed = scenarios.ring_deadlock(watched, seed=seed)
    permutation = {
        name: scenarios.permutation(CONTENDERS[name], hosts=128, size_bytes=1_000_000, seed=seed)
        for name in ("roce", "srd")
    }
    figures = {
        "srd_over_roce_p99_incast": ours["incast_p99_us"] / theirs["incast_p99_us"],
        "victim_slowdown_roce": theirs["far_slowdown"],
        "victim_slowdown_srd": ours["far_slowdown"],
        "near_victim_slowdown_srd": ours["near_slowdown"],
        "permutation_128_median_over_ideal": permutation["srd"]["median_over_ideal"],
        "roce_permutation_128_median_over_ideal": permutation["roce"]["median_over_ideal"],
        "deadlock_shown": ring["deadlock"],
        "tree_deadlock_shown": tree["deadlock"],
        "watchdog_frees": int(freed["storms"] > 0 and not freed["deadlock"]),
        "srd_deadlocks": _srd_deadlocks(seed),
        "lossless_drops": theirs["incast_dropped"],
        "goodput_1pct_loss_roce": theirs["goodput_1pct_loss"],
        "goodput_1pct_loss_srd": ours["goodput_1pct_loss"],
        "paper_error": paper_error(theirs, seed=seed),
    }
    return Round(seed, figures, beside)


def _of(contender: Contender, *, seed: int) -> dict[str, float]:
    incast = scenarios.incast(contender, senders=SENDERS, size_bytes=SIZE_BYTES, seed=seed)
    victim = scenarios.victim(contender, seed=seed)
    lossy = scenarios.loss(contender, percent=1.0, seed=seed)
    return {
        "incast_p50_us": incast["p50_us"],
        "incast_p99_us": incast["p99_us"],
        "incast_max_us": incast["max_us"],
        "incast_dropped": incast["dropped"],
        "far_slowdown": victim["far_slowdown"],
        "near_slowdown": victim["near_slowdown"],
        "goodput_1pct_loss": lossy["goodput"],
    }


def _srd_deadlocks(seed: int) -> float:
    srd = CONTENDERS["srd"]
    return sum(
        scenario(srd, seed=seed)["unfinished"] for scenario in (scenarios.ring_deadlock, scenarios.tree_deadlock)
    )


def paper_error(roce: dict[str, float], *, seed: int) -> float:
    """Return the largest relative deviation from arithmetic."""
    framing = roce_framing(mtu=9000, priority=0)
    packet_us = (framing.payload_bytes + framing.overhead_bytes) * 8e6 / LINK_BPS
    wire_us = scenarios.ideal_us(SIZE_BYTES + framing.packets(SIZE_BYTES) * framing.overhead_bytes)
    expected_us = SENDERS * wire_us + 4 * LINK_US + 3 * packet_us
    rtt_us = 8 * LINK_US + 4 * packet_us + 4 * framing.reply_bytes * 8e6 / LINK_BPS
    lossy = scenarios.loss(CONTENDERS["roce"], percent=LOSS_PERCENT, seed=seed, size_bytes=5 * 20_000_000)
    goodput = lossy["goodput"] * (framing.payload_bytes + framing.overhead_bytes) / framing.payload_bytes
    expected_goodput = 1 / (1 + LOSS_PERCENT / 100 * rtt_us / packet_us)
    errors = (roce["incast_max_us"] / expected_us - 1, goodput / expected_goodput - 1)
    return max(math.fabs(error) for error in errors)
