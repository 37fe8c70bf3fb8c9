"""The mappings of a NAT in front of this end: one for each local port, which are to be kept while nothing is sent.

Theory of operation. A NAT forgets a mapping that no packet has left through for some time (RFC 4787, section 4.3). The
next packet makes another one, with another external port (rebinding). The other end learns the address of a mapping
from DATA and PROBEs that come through it, and sends data there (`paths.validation`). So a PROBE leaves from every
primary path:

1. When the peer is open, so that the other end can use all of them at once.
2. In rounds of `nat_keepalive_s`, whatever else is sent: that is cheap, and needs no record of what was.
3. When the other end challenges an address of this end, but at most every `MIN_ROUND_S`: a mapping was replaced, and so
   may have been the others. Where only the other end has something to send, no packet would show it theirs.
"""

from __future__ import annotations

import math
from typing import Final

MIN_ROUND_S: Final = 0.25
"""Shortest time between two rounds, as between keepalive probes. Each path is challenged in the first one; where the
round trip is longer, a second one follows in vain."""


class Mappings:
    """`poll` returns the path that a PROBE is due on at `due_at`."""

    __slots__ = ("_began_at", "_interval_s", "_next", "_paths", "_round_at")

    def __init__(self, *, paths: int, interval_s: float, now: float) -> None:
        self._paths = paths
        self._interval_s = interval_s
        self._round_at = now  # when the next round begins
        self._began_at = -math.inf  # when the last one began
        self._next = paths  # next path of the current round; `paths`: it is over

    @property
    def due_at(self) -> float:
        """When the next PROBE is due; in a round at once."""
        return self._began_at if self._next < self._paths else self._round_at

    def on_challenge(self, *, now: float) -> None:
        """Note that the other end challenges an address of this end."""
        self._round_at = min(self._round_at, max(now, self._began_at + MIN_ROUND_S))

    def poll(self, *, now: float) -> int | None:
        """Return the path to send a PROBE over, if one is due."""
        if now < self.due_at:
            return None
        if self._next >= self._paths:
            self._next, self._began_at, self._round_at = 0, now, now + self._interval_s
        self._next += 1
        return self._next - 1
