"""One path of one peer: a local source port, and what is known of the route that it selects.

Which links a port's packets take is decided by the hash functions of the switches; all this end can see is round trips
and silence. A path is FIFO, so its own sequence numbers say what was lost (see `loss`).

A path that leaves a packet unanswered for its timeout is suspect: it carries nothing new, and is probed at once. A
second silence quarantines it: it is probed ever more rarely until it answers. `paths` holds all paths of a peer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, auto

from srd.proto.rtt import RttEstimator
from srd.proto.sent import Transmission

MAX_PROBE_INTERVAL_S = 0.2
"""A repaired path is in use again well within a second."""
FULL_LOST_PACKETS = 8
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


class PathInput(Enum):
    """What happens to a path."""

    ANSWER = auto()
    """The peer reported a packet of this path that it had not reported before."""
    SILENCE = auto()
    """A timeout passed without an answer."""
    CALL = auto()
    """It is to stand in for a path that does not answer."""
    DISMISSAL = auto()
    """It need not or cannot stand in any more."""


TRANSITIONS = {
    (PathState.ACTIVE, PathInput.CALL): PathState.ACTIVE,
    (PathState.ACTIVE, PathInput.DISMISSAL): PathState.RESERVE,
    (PathState.ACTIVE, PathInput.ANSWER): PathState.ACTIVE,
    (PathState.ACTIVE, PathInput.SILENCE): PathState.SUSPECT,
    (PathState.SUSPECT, PathInput.ANSWER): PathState.ACTIVE,
    (PathState.SUSPECT, PathInput.SILENCE): PathState.QUARANTINED,
    (PathState.SUSPECT, PathInput.CALL): PathState.SUSPECT,
    (PathState.SUSPECT, PathInput.DISMISSAL): PathState.RESERVE,
    (PathState.QUARANTINED, PathInput.ANSWER): PathState.ACTIVE,
    (PathState.QUARANTINED, PathInput.SILENCE): PathState.QUARANTINED,
    (PathState.QUARANTINED, PathInput.CALL): PathState.QUARANTINED,
    (PathState.QUARANTINED, PathInput.DISMISSAL): PathState.RESERVE,
    (PathState.RESERVE, PathInput.ANSWER): PathState.RESERVE,
    (PathState.RESERVE, PathInput.SILENCE): PathState.RESERVE,
    (PathState.RESERVE, PathInput.CALL): PathState.SUSPECT,
    (PathState.RESERVE, PathInput.DISMISSAL): PathState.RESERVE,
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
        "asked_sequence",
        "counters",
        "full_lost",
        "heard_sent_at",
        "index",
        "inflight_bytes",
        "next_sequence",
        "probe_at",
        "probe_interval_s",
        "probe_sequences",
        "probes_unanswered",
        "reported_sequence",
        "rtt",
        "state",
        "transmissions",
    )

    def __init__(self, index: int, *, initial_rtt_s: float, state: PathState = PathState.ACTIVE) -> None:
        self.index = index
        self.rtt = RttEstimator(initial_s=initial_rtt_s)
        self.state = state
        self.next_sequence = 0
        self.reported_sequence = -1
        self.heard_sent_at = -math.inf  # when the youngest packet was sent that the peer has reported
        self.asked_sequence = -1  # of the burst that the path was last asked about
        self.probe_sequences: list[int] = []  # of probes, above what was reported
        self.full_lost = 0  # packets of full size lost since the last that was delivered
        self.inflight_bytes = 0
        self.transmissions: list[Transmission] = []  # few, and an empty deque takes 760 bytes
        self.probe_at: float | None = None
        self.probe_interval_s = 0.0
        self.probes_unanswered = 0
        self.counters = PathCounters()

    def take_sequence(self, count: int) -> int:
        """Return the first of `count` new sequence numbers; a burst's never straddle a multiple of 2^32."""
        first = self.next_sequence
        if (first + count - 1) >> 32 != first >> 32:
            first = (first >> 32) + 1 << 32
        self.next_sequence = first + count
        return first

    def take_probe_sequence(self) -> int:
        """Return a new sequence number, and remember that it is a probe's."""
        sequence = self.take_sequence(1)
        self.probe_sequences.append(sequence)
        return sequence

    def report(self, sequence: int) -> bool:
        """Note the highest sequence that was reported; return whether it is a probe's."""
        self.reported_sequence = sequence
        if not self.probe_sequences:
            return False
        probe = sequence in self.probe_sequences
        self.probe_sequences = [each for each in self.probe_sequences if each > sequence]
        return probe

    @property
    def doubted(self) -> bool:
        """Whether it has to show that it carries packets of full size."""
        return self.full_lost >= FULL_LOST_PACKETS

    def take(self, what: PathInput) -> None:
        """Change its state by what happened."""
        self.state = TRANSITIONS[self.state, what]

    def take_probe(self, *, now: float, alone: bool) -> int:
        """Return the path sequence of a probe that is due; if the one before was not answered, that is a SILENCE.

        `alone`: no path is active, so that everything waits for an answer and probes do not become rarer.
        """
        if self.probes_unanswered:
            self.take(PathInput.SILENCE)
            self.counters.timeouts += 1
            if not alone:
                self.probe_interval_s = min(self.probe_interval_s * 2, MAX_PROBE_INTERVAL_S)
        self.probes_unanswered += 1
        self.probe_at = now + self.probe_interval_s
        return self.take_probe_sequence()
