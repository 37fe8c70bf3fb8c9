"""Queueing delay of one peer's paths, from their reports; whether the paths are of unequal length.

Theory of operation. Where paths are alike, the queueing delay is what the round trip exceeds the smallest by: it needs
no second clock, and a queue on the way back counts, too. Where they are of unequal length that is wrong: a report comes
back over any path, so the round trip of a short path may contain the way back of a long one. Only there it is the
queueing on the way there (see `paths.one_way`), paths share a window by their queues (see `paths.selector`), and the
quickest ack path is named (see `paths.way_back`).

Paths are of unequal length while two things differ by more than the jitter that loss detection allows for: the base
round trips of the paths, by `UNEQUAL_RTTS` of the smallest of them (less may be a queue that was never empty on some
path yet, or a busy host), and the ways back of the last seconds, by `DETOUR` of it (alone that may be a queue there).
"""

from __future__ import annotations

from typing import Final

from srd.proto.controller import Controller
from srd.proto.paths.one_way import Clocks
from srd.proto.paths.path import Path
from srd.proto.paths.rtt import PeerRtt
from srd.proto.paths.way_back import DETOUR, AckPaths
from srd.proto.wire.control import PathReport

UNEQUAL_RTTS: Final = 1.5
"""How much longer than the shortest a path must be, in the shortest one's round trips: more than a buffer of one
bandwidth-delay product, the delay of the hosts and the queue on the way back add to it."""


class Queueing:
    """`on_report` for each report, `on_ack` after those of an ack; read `unequal`; `ack_paths.best` is to be named."""

    __slots__ = ("_clocks", "_controller", "_rtt", "ack_paths", "unequal")

    def __init__(self, rtt: PeerRtt, *, controller: Controller) -> None:
        """`controller` gets a sample of each report of data."""
        self._rtt = rtt
        self._controller = controller
        self._clocks = Clocks()
        self.ack_paths = AckPaths()
        self.unequal = False
        """Whether the paths are of unequal length."""

    def on_report(
        self, path: Path, report: PathReport, *, rtt_us: int, marked: float, is_probe: bool, now: float
    ) -> None:
        """Take a report, the round trip of which `path` and peer have taken, and `marked` of whose packets were."""
        there_s = self._clocks.way_there_s(
            sent_us=report.sent_us, received_us=report.received_us, rtt_us=rtt_us, now=now
        )
        if is_probe:  # it is shorter than data, arrives sooner, and so is no sample of the queues
            return
        rtt, one_way, shortest_s = path.rtt, path.one_way, self._rtt.min_s
        one_way.update(there_s, clocks=self._clocks, rtt=rtt, now=now)
        is_shared = self._rtt.is_shared(rtt, unequal=self.unequal, now=now)
        base_s = shortest_s if is_shared else rtt.min_s
        is_one_way = self.unequal and not is_shared  # of the handshake no way there is known
        self._controller.on_sample(
            now=now,
            queue_s=one_way.queue_s if is_one_way else max(rtt.latest_s - base_s, 0.0),  # a short packet's may be less
            endpoint_s=report.ack_delay_us / 1e6,
            min_rtt_s=base_s,
            target_base_s=shortest_s if self.unequal else base_s,
            variation_s=one_way.variation_s if self.unequal else rtt.variation_s,
            ecn_fraction=marked,
        )

    def on_ack(self, ack_path: tuple[int, int], *, is_sample: bool, jitter_s: float, now: float) -> bool:
        """Take an ack's ack path; `is_sample`: one of its reports was new. Return whether to name the quickest now."""
        least_s = max(DETOUR * self._rtt.min_s, jitter_s)
        detour_s = self._clocks.detour_s if is_sample else None
        may_differ = self._rtt.spread_s >= max(UNEQUAL_RTTS * self._rtt.min_s, jitter_s)
        self.ack_paths.on_ack(
            ack_path, detour_s=detour_s, least_s=least_s, may_differ=may_differ, rtt_s=self._rtt.smoothed_s, now=now
        )
        self.unequal = self.ack_paths.differ(now=now)
        return self.ack_paths.is_due(now=now)
