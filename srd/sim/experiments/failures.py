"""What failures do to streams: for how long nothing arrives, and when a repaired link carries packets again."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from netns.backends.virtual.fabric import VirtualFabric
from netns.backends.virtual.virtual_link import VirtualLink
from netns.faults.schedule import ScheduledEvent
from netns.topology.model import ETHERNET_HEADER_BYTES
from srd.proto.wire.status import Status
from srd.sim.experiments.bulk import BulkSimulation
from srd.sim.simulation import NS_PER_S

IN_USE_PACKETS: Final = 10
"""Full packets after which a repaired link is in use again."""
CHECK_NS: Final = NS_PER_S // 1000
SAMPLE_NS: Final = NS_PER_S // 10_000
"""Interval of samples of what has landed: a tenth of a millisecond, to which gaps are measured."""


class LinkRepair:
    """Looks every millisecond whether a repaired link or node carries packets again: its link that had carried most."""

    def __init__(self, fabric: VirtualFabric, name: str, *, at_ns: int) -> None:
        """`name` is repaired at that time."""
        self.seconds = math.inf
        self._fabric = fabric
        self._at_ns = at_ns
        self._links = [
            fabric.links[ends]
            for link in fabric.topology.links_at(name)
            for ends in ((link.a, link.b), (link.b, link.a))
        ]
        self._wanted_bytes = IN_USE_PACKETS * (fabric.topology.mtu + ETHERNET_HEADER_BYTES)
        fabric.at(at_ns, self._begin)

    def _begin(self, now_ns: int) -> None:
        link = max(self._links, key=lambda each: each.bytes)
        self._check(link, link.bytes + self._wanted_bytes, now_ns)

    def _check(self, link: VirtualLink, until_bytes: int, now_ns: int) -> None:
        if link.bytes >= until_bytes:
            self.seconds = (now_ns - self._at_ns) / NS_PER_S
        else:
            self._fabric.at(now_ns + CHECK_NS, lambda later_ns: self._check(link, until_bytes, later_ns))


class Failures:
    """Plays a plan of failures beside streams, and watches these from a time on."""

    def __init__(self, running: BulkSimulation, plan: Iterable[ScheduledEvent], *, watched_from_ns: int) -> None:
        """The plan begins now."""
        self._running = running
        self._from_ns = watched_from_ns
        self._landed_bytes = -1
        self._landed_ns = watched_from_ns
        self._longest_ns = 0
        """In which no payload landed."""
        fabric, now_ns, events = running.simulation.fabric, running.simulation.now_ns, list(plan)
        fabric.run_schedule(events)
        ends_us = [(each.name, each.at_us + each.for_us) for each in events if each.action == "fail" and each.for_us]
        ends_us += [(each.name, each.at_us) for each in events if each.action == "repair"]
        self._repairs = [LinkRepair(fabric, name, at_ns=now_ns + round(at_us * 1000)) for name, at_us in ends_us]
        fabric.at(watched_from_ns, self._sample)

    def _sample(self, now_ns: int) -> None:
        landed_bytes = sum(receiver.landed_bytes for receiver in self._running.receivers)
        if landed_bytes != self._landed_bytes:
            self._longest_ns = max(self._longest_ns, now_ns - self._landed_ns)
            self._landed_bytes, self._landed_ns = landed_bytes, now_ns
        self._running.simulation.fabric.at(now_ns + SAMPLE_NS, self._sample)

    def figures(self) -> dict[str, float]:
        """Return the figures of all until now."""
        hosts = self._running.simulation.sim_hosts.values()
        at_ns = sorted(delivery.at_ns for host in hosts for delivery in host.deliveries)
        watched = [each for each in at_ns if each >= self._from_ns]
        gaps_ns = [after - before for before, after in pairwise([*watched, self._running.simulation.now_ns])]
        failed = sum(status is not Status.OK for host in hosts for _, status in host.completions.values())
        return {
            "failed_requests": failed + sum(len(host.ended) for host in hosts),
            "longest_gap_ms": max(gaps_ns, default=0) / 1e6,
            "longest_packet_gap_ms": self._longest_ns / 1e6,
            "messages": len(at_ns),
            **({"repaired_s": max(each.seconds for each in self._repairs)} if self._repairs else {}),
        }
