"""ECN: the effect of congestion marks, on a bottleneck that sets them early.

4 spines (see reference_fabric.py), whose links mark packets that will wait for more than 0.6 ms: two packets, less than
the controller's target delay (1 ms). The baseline `unmarked` is the same without marks. `capacity_fraction`: payload
that lands over the links' capacity for payload, in one second after half a second of warm-up; `mean_queue_ms`: of the
spines' links, sampled every 2 ms; `lost_fraction`: packets declared lost over those sent. `queue_ratio`: marked over
unmarked.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean
from typing import Final

from scripts.benches.outcome import Round, Wanted
from scripts.benches.reference_fabric import LINK, PAYLOAD_FRACTION, RATE_BPS, Bulk, bulk, fabric

WANTED: Final = (Wanted("queue_ratio", "<=", 0.7), Wanted("capacity_fraction", ">=", 0.95))
SECONDS: Final = 1.0
WARM_UP_S: Final = 0.5
SPINES: Final = 4
THRESHOLD_US: Final = 600.0
SAMPLE_S: Final = 0.002


def measure(seed: int, seconds: float) -> Round:
    """One round: with marks, and without."""
    marked, unmarked = (_figures(threshold_us, seed=seed, seconds=seconds) for threshold_us in (THRESHOLD_US, None))
    ratio = marked["mean_queue_ms"] / unmarked["mean_queue_ms"]
    return Round(seed, {"queue_ratio": ratio, **marked}, {"unmarked": unmarked})


def _figures(threshold_us: float | None, *, seed: int, seconds: float) -> dict[str, float]:
    link = replace(LINK, ce_threshold_us=threshold_us)
    running = bulk(fabric(spines=SPINES, name="ecn", seed=seed, change=lambda _leaf, _spine: link), seed=seed)
    running.simulation.run(seconds=WARM_UP_S)
    paths, sender, receiver = running.connection.sender.paths, running.connection.sender, running.connection.receiver
    before = sender.packets, sum(path.counters.lost for path in paths), receiver.landed_bytes
    queue_ms = _mean_queue_ms(running, seconds=seconds)
    running.simulation.require_no_failures()
    packets, lost = sender.packets - before[0], sum(path.counters.lost for path in paths) - before[1]
    landed_bps = (receiver.landed_bytes - before[2]) * 8 / seconds
    return {
        "capacity_fraction": landed_bps / (SPINES * RATE_BPS * PAYLOAD_FRACTION),
        "mean_queue_ms": queue_ms,
        "lost_fraction": lost / packets,
        "marked_packets": sum(path.counters.ecn_ce for path in paths),
    }


def _mean_queue_ms(running: Bulk, *, seconds: float) -> float:
    """Run the simulation; sample the queues from the sender's leaf to the spines meanwhile."""
    links = [running.simulation.fabric.links["leaf1", f"spine{index + 1}"] for index in range(SPINES)]
    waits_ns = []
    for _ in range(round(seconds / SAMPLE_S)):
        running.simulation.run(seconds=SAMPLE_S)
        waits_ns += [link.wait_ns for link in links]
    return fmean(waits_ns) / 1e6
