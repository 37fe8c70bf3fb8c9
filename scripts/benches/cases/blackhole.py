"""Blackhole: one of 4 spines drops everything and is repaired, then 3 of 4.

4 spines (see reference_fabric.py); a constant number of messages of 64 KiB is outstanding. A dead spine drops all
packets and keeps its carrier. 0.5 s of warm-up; spine 1 dead for 0.5 s; 1 s of recovery; spines 1 to 3 dead for 0.5 s;
1 s of recovery.

`stall_rtts`: the longest time between two deliveries of messages, less the minimum timeout of 10 ms (`min_rto_s`), in
RTTs of the empty fabric (2 ms); 0 if it is shorter than the timeout. `longest_packet_gap_ms`: the longest time without
new payload of any message. `failed_requests`: requests that did not complete with OK. `repaired_s`: longest time from a
repair until the link from the sender's leaf to that spine has carried ten full packets again; infinite (null) if it has
not by the end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from netns.backends.virtual.virtual_link import VirtualLink
from scripts.benches.outcome import Round
from scripts.benches.reference_fabric import ENDS, PACKET_BYTES, RTT_S, fabric
from srd.proto.wire.status import Status
from srd.sim.experiments.bulk import BulkSimulation, bulk
from srd.sim.simulation import NS_PER_S

SPINES: Final = 4
MESSAGE_BYTES: Final = 64 << 10
OUTSTANDING: Final = 384
"""Outstanding messages: 24 MiB, as in the other cases."""
MIN_RTO_S: Final = 0.010
FAILURES: Final = ((0.5, ("spine1",)), (2.0, ("spine1", "spine2", "spine3")))
"""Time of each failure, and its spines."""
DEAD_S: Final = 0.5
END_S: Final = 3.5
LEAD_S: Final = 0.1
"""Gaps count from this time before the first failure."""
IN_USE_BYTES: Final = 10 * PACKET_BYTES
CHECK_INTERVAL_NS: Final = NS_PER_S // 1000
SAMPLE_NS: Final = NS_PER_S // 10_000
"""Interval of samples of what has landed: a tenth of a millisecond, to which gaps are measured."""


@dataclass(slots=True)
class LinkRepair:
    """A repaired link: checks every millisecond whether it carries packets again."""

    running: BulkSimulation
    link: VirtualLink
    repaired_at_ns: int
    seconds: float = math.inf
    _bytes: int = 0

    def watch(self, _now_ns: int) -> None:
        """Start at the repair."""
        self._bytes = self.link.bytes
        self._check(_now_ns)

    def _check(self, now_ns: int) -> None:
        if self.link.bytes - self._bytes >= IN_USE_BYTES:
            self.seconds = (now_ns - self.repaired_at_ns) / NS_PER_S
        else:
            self.running.simulation.fabric.at(now_ns + CHECK_INTERVAL_NS, self._check)


class Landings:
    """The longest time in which no payload landed, in samples every SAMPLE_NS."""

    def __init__(self, running: BulkSimulation) -> None:
        self.longest_gap_ns = 0
        self._running = running
        self._bytes = -1
        self._landed_ns = running.simulation.now_ns

    def sample(self, now_ns: int) -> None:
        """Check whether anything has landed since the last sample, and schedule the next."""
        landed_bytes = self._running.connection.receiver.landed_bytes
        if landed_bytes != self._bytes:
            self.longest_gap_ns = max(self.longest_gap_ns, now_ns - self._landed_ns)
            self._bytes, self._landed_ns = landed_bytes, now_ns
        self._running.simulation.fabric.at(now_ns + SAMPLE_NS, self.sample)


def measure(seed: int, _seconds: float) -> Round:
    """One round."""
    topology = fabric(spines=SPINES, name="blackhole", seed=seed)
    running = bulk(topology, seed=seed, ends=ENDS, message_bytes=MESSAGE_BYTES, outstanding=OUTSTANDING)
    repairs = _schedule(running)
    started_ns = running.simulation.now_ns
    running.simulation.run(seconds=FAILURES[0][0] - LEAD_S)
    landings = Landings(running)
    landings.sample(running.simulation.now_ns)
    running.simulation.run(seconds=END_S - FAILURES[0][0] + LEAD_S)
    source, destination = running.connection.source, running.connection.destination
    first_ns = started_ns + round((FAILURES[0][0] - LEAD_S) * NS_PER_S)
    times_ns = [delivery.at_ns for delivery in destination.deliveries if delivery.at_ns >= first_ns]
    gap_s = (
        max((after - before for before, after in pairwise([*times_ns, running.simulation.now_ns])), default=0)
        / NS_PER_S
    )
    failed = sum(status is not Status.OK for _, status in source.completions.values())
    return Round(
        seed,
        {
            "stall_rtts": max(gap_s - MIN_RTO_S, 0.0) / RTT_S,
            "failed_requests": failed + len(source.ended) + len(destination.ended),
            "repaired_s": max(repair.seconds for repair in repairs),
            "longest_gap_ms": gap_s * 1e3,
            "longest_packet_gap_ms": landings.longest_gap_ns * 1e-6,
            "messages": len(destination.deliveries),
        },
    )


def _schedule(running: BulkSimulation) -> list[LinkRepair]:
    fabric, repairs = running.simulation.fabric, []
    for at_s, spines in FAILURES:
        at_ns = running.simulation.now_ns + round(at_s * NS_PER_S)
        for spine in spines:
            dead_ns = round(DEAD_S * NS_PER_S)
            fabric.fail(spine, at_ns=at_ns, for_ns=dead_ns)
            repair = LinkRepair(running, fabric.links["leaf1", spine], at_ns + dead_ns)
            fabric.at(at_ns + dead_ns, repair.watch)
            repairs.append(repair)
    return repairs
