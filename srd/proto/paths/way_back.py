"""Which ack path is the quickest, and whether that matters.

Theory of operation. The receiver rotates its acks over all ack paths and cannot know which of them is quick: only their
receiver sees when they arrive. Where some ways back are much longer than others, the window has to cover the mean of
them, and each loss is found that much later. So this end names the quickest ack path in a PROBE from time to time, and
most acks then take it (see `recv.acks`). Some continue to rotate, so that a quicker one is found.
"""

from __future__ import annotations

import math
from typing import Final

from srd.proto.paths.rtt import MIN_WINDOW_S
from srd.proto.wire.control import NO_ACK_PATH

DETOUR: Final = 0.25
"""How much longer than the quickest a way back must be to matter, over the smallest round trip, as for `REORDERING`."""
RENEWAL_S: Final = 0.25
"""Interval of the PROBEs that name the quickest ack path: half of the time for which a receiver prefers it."""
FRESH_RTTS: Final = 2
"""Round trips after which another ack path replaces the quickest, if no ack came over it: it may be dead."""


class AckPaths:
    """`on_ack` for each ack; `best` is the ack path to prefer (the last, if they are alike); `is_due`: name it."""

    __slots__ = ("_best_at", "_best_detour_s", "_differ_until", "_named_at", "best")

    def __init__(self) -> None:
        self.best = NO_ACK_PATH
        self._best_detour_s = math.inf
        self._best_at = -math.inf
        self._differ_until = -math.inf  # until when some way back counts as much longer than the quickest
        self._named_at = -math.inf

    def on_ack(
        self,
        ack_path: tuple[int, int],
        *,
        detour_s: float | None,
        least_s: float,
        may_differ: bool,
        rtt_s: float,
        now: float,
    ) -> None:
        """Note an ack whose way back was longer than the quickest by `detour_s`; None: it told nothing.

        If the ways back `may_differ`, as the paths' round trips do, `least_s` and more matters.
        """
        if detour_s is None:
            if not self.differ(now=now):
                self.best = ack_path
            return
        if may_differ and detour_s >= least_s:
            self._differ_until = now + MIN_WINDOW_S
        is_quick = not self.differ(now=now) or detour_s < self._best_detour_s + least_s
        if is_quick or now - self._best_at > FRESH_RTTS * rtt_s:
            self.best, self._best_detour_s, self._best_at = ack_path, detour_s, now

    def differ(self, *, now: float) -> bool:
        """Whether some way back of the last seconds was much longer than the quickest."""
        return now < self._differ_until

    def is_due(self, *, now: float) -> bool:
        """Whether to name the quickest ack path now."""
        if not self.differ(now=now) or now - self._named_at < RENEWAL_S:
            return False
        self._named_at = now
        return True
