"""The counters of a cell's lab and machine at one time; the difference of two readings is what a cell did."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from netns.lab.lab import Lab
from netns.observe.machine import Ticks
from srd.compare.fabric import links_that_can_fail, ways_up
from srd.compare.outcome import Loads, shares


@dataclass(frozen=True, slots=True)
class Reading:
    """The counters at one time."""

    at: float
    """Monotonic time, in seconds."""
    sent_bytes: Mapping[tuple[str, str], int]
    """By (from, to): what a switch has sent to another."""
    ticks: Ticks
    """Of all cores."""
    relay_cpu_s: float | None
    """Processor time of the relay; None on the kernel backend."""

    @classmethod
    def take(cls, lab: Lab) -> Reading:
        """Read them now."""
        at = time.monotonic()
        counters, status = lab.counters(), lab.relay_status()
        sent: dict[tuple[str, str], int] = {}
        for link in map(lab.topology.link, links_that_can_fail(lab.topology)):
            sent[link.a, link.b] = counters[link.name]["ab"]["bytes"]
            sent[link.b, link.a] = counters[link.name]["ba"]["bytes"]
        return cls(
            at=at,
            sent_bytes=sent,
            ticks=Ticks.parse(Path("/proc/stat").read_text()),
            relay_cpu_s=None if status is None else float(status["cpu_seconds"]),
        )

    def busiest_link(self, lab: Lab, *, since: Reading) -> str:
        """Return the name of the link between switches that has carried most since then, both directions together."""

        def carried(name: str) -> int:
            link = lab.topology.link(name)
            return sum(self.sent_bytes[pair] - since.sent_bytes[pair] for pair in ((link.a, link.b), (link.b, link.a)))

        return max(links_that_can_fail(lab.topology), key=carried)

    def path_shares(self, lab: Lab, *, since: Reading, senders: Collection[str]) -> dict[str, float]:
        """Return each spine's share of the bytes that the switches over the senders have sent up since then."""
        sent = dict.fromkeys(lab.topology.spines, 0)
        for switch, spine in ways_up(lab.topology, senders):
            sent[spine] += self.sent_bytes[switch, spine] - since.sent_bytes[switch, spine]
        return shares(sent)

    def loads(self, *, since: Reading, workers_cpu_s: Sequence[float], seconds: float) -> Loads:
        """Return how busy the machine was since then, and the workers in these seconds of theirs."""
        ticks, before = self.ticks, since.ticks
        relay_cpu = None
        if self.relay_cpu_s is not None and since.relay_cpu_s is not None and self.at > since.at:
            relay_cpu = (self.relay_cpu_s - since.relay_cpu_s) / (self.at - since.at)
        return Loads(
            machine_busy=_rounded(ticks.share(ticks.busy - before.busy, since=before)),
            stolen=_rounded(ticks.share(ticks.stolen - before.stolen, since=before)),
            relay_cpu=_rounded(relay_cpu),
            workers_cpu=_rounded(sum(workers_cpu_s) / seconds) if workers_cpu_s and seconds > 0 else None,
            cores=os.cpu_count(),
            busiest_worker_cpu=_rounded(max(workers_cpu_s) / seconds) if workers_cpu_s and seconds > 0 else None,
        )


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 3)
