"""Choice of a path for each burst: the path that has just delivered, unless a random other is clearly faster.

Theory of operation.
1. ACK clock. A path that was just heard from has just drained what it carries again: what follows an answer goes where
   the answer came from (MP-RDMA, NSDI 2018; REPS recycles its entropies likewise). Each queue is refilled at the rate
   at which it drains, so the split over unequal or shared links keeps itself.
2. Two choices. The candidate is compared with one random other; if that has a clearly shorter smoothed round trip, it
   is taken instead. So the split drifts towards the faster paths, and a congested path is left, not slowed for. A path
   that has not been heard from for a while, or never, and carries nothing, is taken too: to learn how it is now.
3. What was dropped earns nothing: a path that overflows a queue gets less. A lost packet's next path is another one.

Why not the power of two choices on (round trip, bytes in flight) alone: source ports share links, and a port does not
see what the others have sent into the same queue. In virtual time (4 links of 250 Mbit/s, 2 ms, 16 ports, three
seeds): 694, 905, 852 Mbit/s with two random candidates; 926, 920, 912 Mbit/s with the ACK clock and this rule.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from random import Random

from srd.proto.path import Path, PathState

CLEARLY_FASTER = 1.25
"""Ratio of smoothed round trips from which the random candidate is preferred; below it noise would move bursts."""
STALE_S = 0.1
"""Age from which a round trip says nothing of the present: some tens of round trips of a data centre."""
MAX_EARNED = 256
"""Answers remembered: a few windows' worth; older ones say nothing of the queues now."""


class Spray:
    """`earn` for each answer, `choose` for each burst."""

    __slots__ = ("_earned", "_rng")

    def __init__(self, *, rng: Random) -> None:
        self._rng = rng
        self._earned: deque[tuple[Path, int]] = deque(maxlen=MAX_EARNED)  # (path, packets it has answered for)

    def earn(self, path: Path, *, packets: int) -> None:
        """Note that `path` has delivered `packets` and may carry as many."""
        self._earned.append((path, packets))

    def choose(self, active: Sequence[Path], *, packets: int, now: float, avoid: Path | None = None) -> Path:
        """Pick one of the active paths (at least one) for `packets`; not `avoid` when there is another."""
        candidate = self._spend(packets, avoid=avoid) or self._random(active, avoid=avoid)
        other = self._random(active, avoid=avoid)
        unknown = not other.inflight_bytes and now - other.rtt.sampled_at > STALE_S
        faster = other.rtt.smoothed_s * CLEARLY_FASTER < candidate.rtt.smoothed_s
        return other if unknown or faster else candidate

    def _spend(self, packets: int, *, avoid: Path | None) -> Path | None:
        while self._earned:
            path, earned = self._earned.popleft()
            if path.state is PathState.ACTIVE and path is not avoid:
                if earned > packets:
                    self._earned.appendleft((path, earned - packets))
                return path
        return None

    def _random(self, active: Sequence[Path], *, avoid: Path | None) -> Path:
        index = int(self._rng.random() * len(active))
        path = active[index]
        return path if path is not avoid else active[(index + 1) % len(active)]
