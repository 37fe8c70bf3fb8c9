"""One path of one peer: a local source port, and what is known of the route that it selects.

Which links a port's packets take is decided by the hash functions of the switches; all this end can see is round trips
and silence. A path is FIFO, so its own sequence numbers say what was lost (see `recovery.rack`).

A path that leaves a packet unanswered for its timeout is suspect: it carries nothing new, and is probed at once. A
second silence quarantines it: it is probed ever more rarely until it answers. `paths` holds all paths of a peer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, auto

from srd.proto.paths.rtt import RttEstimator
from srd.proto.send.inflight import InflightBurst

MAX_PROBE_INTERVAL_S = 0.2
"""A repaired path is in use again well within a second."""
MTU_SUSPECT_LOSSES = 8
"""Full packets lost in a row from which a path is doubted: with 10 % of losses by chance one time in 10^8. RFC 8899
takes three probes, which are rarer. A path that is doubted for nothing is back after one probe. To send all probes at
full size instead cost 0.05 of the capacity at 10 % of losses."""


class PathState(Enum):
    """How far a path is trusted."""

    ACTIVE = auto()
    """Carries data."""
    SUSPECT = auto()
    """Fell silent once, or was just called; its probe is out."""
    QUARANTINED = auto()
    """Fell silent twice or more; probed with exponential back-off."""
    RESERVE = auto()
    """Not in use: neither carries data nor is probed, until it is called to stand in for another."""


class PathEvent(Enum):
    """What happens to a path."""

    ANSWER = auto()
    """The peer reported a packet of this path that it had not reported before."""
    TIMEOUT = auto()
    """A timeout passed without an answer."""
    OPEN = auto()
    """It is to stand in for a path that does not answer."""
    RETIRE = auto()
    """It need not or cannot stand in any more."""


TRANSITIONS = {
    (PathState.ACTIVE, PathEvent.OPEN): PathState.ACTIVE,
    (PathState.ACTIVE, PathEvent.RETIRE): PathState.RESERVE,
    (PathState.ACTIVE, PathEvent.ANSWER): PathState.ACTIVE,
    (PathState.ACTIVE, PathEvent.TIMEOUT): PathState.SUSPECT,
    (PathState.SUSPECT, PathEvent.ANSWER): PathState.ACTIVE,
    (PathState.SUSPECT, PathEvent.TIMEOUT): PathState.QUARANTINED,
    (PathState.SUSPECT, PathEvent.OPEN): PathState.SUSPECT,
    (PathState.SUSPECT, PathEvent.RETIRE): PathState.RESERVE,
    (PathState.QUARANTINED, PathEvent.ANSWER): PathState.ACTIVE,
    (PathState.QUARANTINED, PathEvent.TIMEOUT): PathState.QUARANTINED,
    (PathState.QUARANTINED, PathEvent.OPEN): PathState.QUARANTINED,
    (PathState.QUARANTINED, PathEvent.RETIRE): PathState.RESERVE,
    (PathState.RESERVE, PathEvent.ANSWER): PathState.RESERVE,
    (PathState.RESERVE, PathEvent.TIMEOUT): PathState.RESERVE,
    (PathState.RESERVE, PathEvent.OPEN): PathState.SUSPECT,
    (PathState.RESERVE, PathEvent.RETIRE): PathState.RESERVE,
}


@dataclass(slots=True)
class PathCounters:
    """Totals of one path, in packets unless the name says otherwise."""

    packets: int = 0
    bytes: int = 0
    retransmitted: int = 0
    """Packets sent on this path that had been sent before, on another."""
    lost: int = 0
    """Packets of this path declared lost."""
    timeouts: int = 0
    duplicates: int = 0
    """Packets of this path that the receiver had already: retransmissions that were not needed."""
    marked: int = 0
    """Packets of this path that arrived with a congestion mark."""


class Path:
    """Sender's state of one path."""

    __slots__ = (
        "counters",
        "full_size_losses",
        "index",
        "inflight_bytes",
        "newest_acked_sent_at",
        "next_sequence",
        "probe_at",
        "probe_interval_s",
        "probe_sequences",
        "probes_unanswered",
        "reported_sequence",
        "rtt",
        "state",
        "tail_probe_sequence",
        "transmissions",
    )

    def __init__(self, index: int, *, initial_rtt_s: float, state: PathState = PathState.ACTIVE) -> None:
        self.index = index
        self.rtt = RttEstimator(initial_s=initial_rtt_s)
        self.state = state
        self.next_sequence = 0
        self.reported_sequence = -1
        self.newest_acked_sent_at = -math.inf  # when the youngest packet was sent that the peer has reported
        self.tail_probe_sequence = -1  # of the burst that the path was last asked about
        self.probe_sequences: list[int] = []  # of probes, above what was reported
        self.full_size_losses = 0  # packets of full size lost since the last that was delivered
        self.inflight_bytes = 0
        self.transmissions: list[InflightBurst] = []  # few, and an empty deque takes 760 bytes
        self.probe_at: float | None = None
        self.probe_interval_s = 0.0
        self.probes_unanswered = 0
        self.counters = PathCounters()

    def allocate_sequences(self, count: int) -> int:
        """Return the first of `count` new sequence numbers; a burst's never straddle a multiple of 2^32."""
        first = self.next_sequence
        if (first + count - 1) >> 32 != first >> 32:
            first = (first >> 32) + 1 << 32
        self.next_sequence = first + count
        return first

    def allocate_probe_sequence(self) -> int:
        """Return a new sequence number, and remember that it is a probe's."""
        sequence = self.allocate_sequences(1)
        self.probe_sequences.append(sequence)
        return sequence

    def on_report(self, sequence: int) -> bool:
        """Note the highest sequence that was reported; return whether it is a probe's."""
        self.reported_sequence = sequence
        if not self.probe_sequences:
            return False
        probe = sequence in self.probe_sequences
        self.probe_sequences = [each for each in self.probe_sequences if each > sequence]
        return probe

    @property
    def mtu_suspect(self) -> bool:
        """Whether it has to show that it carries packets of full size."""
        return self.full_size_losses >= MTU_SUSPECT_LOSSES

    def apply(self, event: PathEvent) -> None:
        """Change its state by what happened."""
        self.state = TRANSITIONS[self.state, event]

    def on_probe_sent(self, *, now: float, alone: bool) -> int:
        """Return the path sequence of a probe that is due; if the one before was not answered, that is a TIMEOUT.

        `alone`: no path is active, so that everything waits for an answer and probes do not become rarer.
        """
        if self.probes_unanswered:
            self.apply(PathEvent.TIMEOUT)
            self.counters.timeouts += 1
            if not alone:
                self.probe_interval_s = min(self.probe_interval_s * 2, MAX_PROBE_INTERVAL_S)
        self.probes_unanswered += 1
        self.probe_at = now + self.probe_interval_s
        return self.allocate_probe_sequence()
