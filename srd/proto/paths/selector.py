"""Choice of a path for each burst: the path that was just acknowledged, unless a random other is clearly better.

Theory of operation.
1. ACK clock. A path that was just acknowledged has drained that many packets, so the next burst goes to that path
   (MP-RDMA, NSDI 2018; REPS recycles its entropies likewise). Each queue is refilled at the rate at which it drains, so
   the split over unequal or shared links maintains itself.
2. Two choices. A candidate whose expected round trip is clearly above its smallest one is compared with one random
   other path; if that is clearly faster, it is taken instead. Without an acknowledgement to follow, two random paths
   are compared. So traffic moves away from a congested path, while a long path carries what it can. Where paths are of
   unequal length and a window is to be spread over all of them, the path with the shorter queue on the way there is
   taken: by round trips a long path would be left idle until the queue of a short one has become as long.
3. Measurements fade, since queues drain. A path is expected to take its smoothed round trip just after an answer, and
   its smallest one some round trips later. A path that was never sampled is tried once. A path that leaves a burst
   unanswered for longer than its smoothed round trip is expected to take at least that long: otherwise a dead path,
   whose last measurement fades, would look ever better until its timeout.
4. Lost packets earn no ACK credit: a path that overflows a queue gets less. A retransmission goes to another path. If
   that path has not answered lately, it goes to the one that answered last: where most paths have just died, a random
   one is probably dead, and an idle dead path looks fast.

The power of two choices on (round trip, bytes in flight) alone does not suffice: source ports share links, and a port
does not see what others have sent into the same queue.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Final

from srd.proto.paths.path import Path, PathState
from srd.proto.paths.rtt import FRESH_RTTS

CLEARLY_FASTER: Final = 1.25
"""Ratio of expected round trips from which the random path is preferred; less would move bursts because of noise."""
FADE_RTTS: Final = 20.0
"""Smallest round trips after which a measured queue is assumed to have drained: a buffer is rarely larger."""
MAX_SIZE_LOSSES: Final = 3
"""Packets lost in a row, while shorter ones may pass, beyond which the path that answered last gets no retransmissions:
it may carry short packets only, and each such path must be detected."""
MAX_ACK_CREDITS: Final = 256
"""ACK credits kept: a few windows' worth; older ones do not reflect the present queues."""


class PathSelector:
    """`on_ack` for each report, `select` for each burst."""

    __slots__ = ("_ack_credits", "_rng", "last_acked")

    def __init__(self, *, rng: Random) -> None:
        self._rng = rng
        self.last_acked: Path | None = None  # the path that was reported last
        self._ack_credits: list[tuple[Path, int]] = []  # (path, packets acknowledged that no packet has followed yet)

    def on_ack(self, path: Path, *, packets: int) -> None:
        """Note that `path` has delivered `packets` and may carry as many."""
        self._ack_credits.append((path, packets))
        if len(self._ack_credits) > MAX_ACK_CREDITS:
            del self._ack_credits[0]
        self.last_acked = path

    def select(
        self, active: Sequence[Path], *, packets: int, now: float, cwnd_limited: bool, unequal: bool
    ) -> tuple[Path, int]:
        """Choose one of the active paths (at least one), and how many of `packets` go there in one burst.

        `cwnd_limited`: no more than the path's ACK credit. `unequal`: the paths are of unequal length.
        """
        spent = self._use_ack_credit(packets)
        candidate, credit = spent or (self._random(active, avoid=None), packets)
        if cwnd_limited and unequal:
            if expected_queue_s(candidate, now=now) > (CLEARLY_FASTER - 1) * candidate.rtt.min_s:
                candidate = self._emptier(candidate, self._random(active, avoid=None), now=now)
        elif spent is None or expected_rtt_s(candidate, now=now) > CLEARLY_FASTER * candidate.rtt.min_s:
            candidate = self._faster(candidate, self._random(active, avoid=None), now=now)
        return candidate, credit if cwnd_limited else packets

    def select_for_retransmission(self, active: Sequence[Path], *, now: float, avoid: Path | None) -> Path:
        """Choose an active path (of at least one) for packets lost on `avoid`, which is taken only if it is alone."""
        chosen = self._faster(self._random(active, avoid=avoid), self._random(active, avoid=avoid), now=now)
        last, recent = self.last_acked, now - chosen.rtt.sampled_at < FRESH_RTTS * chosen.rtt.smoothed_s
        if (
            recent
            or last is None
            or last is avoid
            or last.lost_in_row > MAX_SIZE_LOSSES
            or last.state is not PathState.ACTIVE
        ):
            return chosen
        return last

    @staticmethod
    def _faster(candidate: Path, other: Path, *, now: float) -> Path:
        faster = expected_rtt_s(other, now=now) * CLEARLY_FASTER < expected_rtt_s(candidate, now=now)
        return other if faster else candidate

    @staticmethod
    def _emptier(candidate: Path, other: Path, *, now: float) -> Path:
        margin_s = (CLEARLY_FASTER - 1) * min(candidate.rtt.min_s, other.rtt.min_s)
        emptier = expected_queue_s(other, now=now) + margin_s < expected_queue_s(candidate, now=now)
        return other if emptier else candidate

    def _use_ack_credit(self, packets: int) -> tuple[Path, int] | None:
        while self._ack_credits:
            path, credit = self._ack_credits.pop(0)
            if path.state is PathState.ACTIVE:
                if credit > packets:
                    self._ack_credits.insert(0, (path, credit - packets))
                return path, min(credit, packets)
        return None

    def _random(self, active: Sequence[Path], *, avoid: Path | None) -> Path:
        index = int(self._rng.random() * len(active))
        path = active[index]
        return path if path is not avoid else active[(index + 1) % len(active)]


def expected_rtt_s(path: Path, *, now: float) -> float:
    """Return the round trip that a burst sent now can expect, in seconds."""
    rtt = path.rtt
    if not rtt.sampled:
        return math.inf if path.inflight_bytes else 0.0
    expected = rtt.min_s + (rtt.smoothed_s - rtt.min_s) * _freshness(path, now=now)
    return max(expected, stall_s(path, now=now))  # its oldest burst is taking that long already


def expected_queue_s(path: Path, *, now: float) -> float:
    """Return the queueing delay on the way there that a burst sent now can expect, in seconds."""
    rtt = path.rtt
    if not rtt.sampled:
        return math.inf if path.inflight_bytes else 0.0
    return max(path.one_way.smoothed_s * _freshness(path, now=now), stall_s(path, now=now) - rtt.min_s)


def _freshness(path: Path, *, now: float) -> float:
    """Return what is left of a queue that was just measured, at most 1."""
    return max(1.0 - (now - path.rtt.sampled_at) / (FADE_RTTS * path.rtt.min_s), 0.0)


def stall_s(path: Path, *, now: float) -> float:
    """Return how long a path has left its oldest burst unanswered, in seconds; 0 up to its smoothed round trip."""
    if not path.transmissions:
        return 0.0
    head = path.transmissions[0]
    stalled_s = now - head.sent_at
    if stalled_s <= path.rtt.smoothed_s or head.path_sequence <= path.reported_sequence:  # lost, but not unanswered
        return 0.0
    return stalled_s
