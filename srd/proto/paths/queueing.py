"""Queueing delay of one peer's paths, from their reports; whether the paths are of unequal length.

Theory of operation. Where paths are alike, the queueing delay is what the round trip exceeds the smallest by: it needs
no second clock, and a queue on the way back counts, too. Where they are of unequal length that is wrong: a report comes
back over any path, so the round trip of a short path may contain the way back of a long one. Only there it is the
queueing on the way there (see `one_way`), paths share a window by their queues (see `selector`), and the quickest ack
path is named (see `way_back`).

Paths are of unequal length while two things differ by `DETOUR` of the smallest round trip, and by the jitter that loss
detection allows for: the base round trips of the paths, and the ways back of the last seconds. The first alone may be a
queue that was never empty on some path yet, or a host that was busy; the second alone a queue on the way back.
"""

from __future__ import annotations

from typing import NamedTuple

from srd.proto.paths.one_way import Clocks
from srd.proto.paths.path import Path
from srd.proto.paths.rtt import PeerRtt
from srd.proto.paths.way_back import DETOUR, AckPaths
from srd.proto.wire.control import PathReport


class Queueing(NamedTuple):
    """What one report says, in seconds."""

    queue_s: float
    base_s: float
    """Base round trip of the path."""
    target_base_s: float
    """Base round trip that the delay target is a fraction of: a longer path has no longer queues."""
    variation_s: float
    """Mean deviation of what is free of queues."""


class QueueingEstimator:
    """`on_report`, then `of` for each report of data; `on_ack` after the reports of each ack."""

    __slots__ = ("_clocks", "_rtt", "ack_paths", "unequal")

    def __init__(self, rtt: PeerRtt) -> None:
        self._rtt = rtt
        self._clocks = Clocks()
        self.ack_paths = AckPaths()
        self.unequal = False
        """Whether the paths are of unequal length."""

    def on_report(self, path: Path, report: PathReport, *, rtt_us: int, is_probe: bool, now: float) -> None:
        """Take a report, whose round trip was added to the path's; a probe is short, and arrives sooner than data."""
        there_s = self._clocks.way_there_s(
            sent_us=report.sent_us, received_us=report.received_us, rtt_us=rtt_us, now=now
        )
        if not is_probe:
            path.one_way.update(there_s, clocks=self._clocks, rtt=path.rtt, now=now)

    def of(self, path: Path, *, now: float) -> Queueing:
        """Return what the path's latest report says."""
        rtt, shortest_s = path.rtt, self._rtt.min_s
        if self._rtt.is_shared(rtt, unequal=self.unequal, now=now):
            variation_s = path.one_way.variation_s if self.unequal else rtt.variation_s
            return Queueing(rtt.latest_s - shortest_s, shortest_s, shortest_s, variation_s)
        if not self.unequal:
            return Queueing(rtt.latest_s - rtt.min_s, rtt.min_s, rtt.min_s, rtt.variation_s)
        return Queueing(path.one_way.queue_s, rtt.min_s, shortest_s, path.one_way.variation_s)

    def on_ack(self, ack_path: tuple[int, int], *, is_sample: bool, jitter_s: float, now: float) -> None:
        """Take the ack path of an ack; `is_sample`: one of its reports was new."""
        least_s = max(DETOUR * self._rtt.min_s, jitter_s)
        detour_s = self._clocks.detour_s if is_sample else None
        may_differ = self._rtt.spread_s >= least_s
        self.ack_paths.on_ack(
            ack_path, detour_s=detour_s, least_s=least_s, may_differ=may_differ, rtt_s=self._rtt.smoothed_s, now=now
        )
        self.unequal = self.ack_paths.differ(now=now)
