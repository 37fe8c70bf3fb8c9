"""One path of one peer: a local source port, and what is known of the route that it selects.

The hash functions of the switches decide which links a port's packets take; this end sees only round trips and
timeouts. A path is FIFO, so its own sequence numbers show what was lost (see `paths.rack`).

A path that leaves a packet unanswered for its timeout becomes suspect: it carries no new data, and is probed at once. A
second timeout quarantines it: it is probed with exponential back-off until it answers. `paths.table` holds all paths of
a peer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from srd.proto.outgoing.inflight import InflightBurst
from srd.proto.paths.black_hole import SizeLosses
from srd.proto.paths.one_way import OneWayDelay
from srd.proto.paths.rtt import RttEstimator

MAX_PROBE_INTERVAL_S: Final = 0.2
"""Largest probe interval, so that a repaired path is in use again well within a second."""
FULL_PROBES: Final = 4
"""Full-size probes of a path that are known as such: so many are out where answers take longer than expected."""

MAX_PROBE_RANGES: Final = 16
"""Runs of probes, without data between, of which a path remembers that they were no data. On a path that answers there
are a few at a time; a peer that reports only old packets could make them many."""


class PathState(Enum):
    """State of a path."""

    ACTIVE = auto()
    """Carries data."""
    SUSPECT = auto()
    """Timed out once, or was just opened as a standby; a probe is out."""
    QUARANTINED = auto()
    """Timed out twice or more; probed with exponential back-off."""
    RESERVE = auto()
    """Not in use: neither carries data nor is probed, until it is opened as the standby of another path."""


class PathEvent(Enum):
    """What happens to a path."""

    ANSWER = auto()
    """The peer reported a path sequence above all that it had reported."""
    TIMEOUT = auto()
    """A timeout passed without an answer."""
    OPEN = auto()
    """It becomes the standby of a path that does not answer."""
    RETIRE = auto()
    """It is no longer needed, or not usable, as a standby."""


TRANSITIONS: Final = {
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
    """Totals of one path, in packets unless the name has another unit."""

    packets: int = 0
    bytes: int = 0
    retransmitted: int = 0
    """Packets sent on this path that had been sent before, on another path."""
    retransmitted_bytes: int = 0
    """Header and payload of these packets."""
    lost: int = 0
    """Packets of this path declared lost."""
    timeouts: int = 0
    quarantines: int = 0
    """Times that it was quarantined."""
    duplicates: int = 0
    """Packets of this path that the receiver had already: spurious retransmissions."""
    ecn_ce: int = 0
    """Packets of this path that arrived with a congestion mark (ECN CE)."""


class Path:
    """Sender's state of one path."""

    __slots__ = (
        "_size_losses",
        "counters",
        "full_probes",
        "index",
        "inflight_bytes",
        "newest_acked_sent_at",
        "next_sequence",
        "one_way",
        "probe_at",
        "probe_interval_s",
        "probe_sequences",
        "probes_unanswered",
        "reported_sequence",
        "rtt",
        "standby",
        "state",
        "tail_probe_sequence",
        "transmissions",
    )

    def __init__(self, index: int, *, initial_rtt_s: float, state: PathState = PathState.ACTIVE) -> None:
        self.index = index
        self.rtt = RttEstimator(initial_s=initial_rtt_s)
        self.one_way = OneWayDelay()
        self.state = state
        self.next_sequence = 0
        self.reported_sequence = -1
        self.newest_acked_sent_at = -math.inf  # send time of the newest packet that the peer has reported
        self.tail_probe_sequence = -1  # first sequence of the burst that the last tail loss probe was sent for
        self.probe_sequences: tuple[range, ...] = ()  # of probes, above the highest sequence reported; the last ones
        self.full_probes: tuple[int, ...] = ()  # of these, the last ones of full size
        self._size_losses: SizeLosses | None = None  # None: there was no loss
        self.standby: Path | None = None  # of a primary path that does not answer
        self.inflight_bytes = 0
        self.transmissions: list[InflightBurst] = []  # a list: there are few, and an empty deque takes more memory
        self.probe_at: float | None = None
        self.probe_interval_s = 0.0
        self.probes_unanswered = 0
        self.counters = PathCounters()

    def _burst_of(self, sequence: int) -> InflightBurst | None:
        """Return the burst in flight that has this path sequence."""
        for burst in self.transmissions:
            if burst.path_sequence <= sequence <= burst.last_sequence:
                return burst
        return None

    def carried_full(self, sequence: int) -> bool:
        """Whether a packet in flight has this path sequence, and the size of those that were lost in a row."""
        burst = self._burst_of(sequence)
        return burst is not None and burst.is_full(sequence) and self.size_losses.counts(burst.psns.packet_bytes)

    def carries_long(self, sequence: int, *, least_bytes: int) -> bool:
        """Whether a packet in flight has this path sequence, and at least so many bytes."""
        burst = self._burst_of(sequence)
        return burst is not None and burst.psns.packet_bytes >= least_bytes and burst.is_full(sequence)

    def allocate_sequences(self, count: int) -> int:
        """Return the first of `count` new sequence numbers; a burst's never straddle a multiple of 2^32."""
        first = self.next_sequence
        if (first + count - 1) >> 32 != first >> 32:
            first = (first >> 32) + 1 << 32
        self.next_sequence = first + count
        return first

    def allocate_probe_sequence(self) -> int:
        """Return a new sequence number, and record that it is a probe's."""
        sequence, probes = self.allocate_sequences(1), self.probe_sequences
        if probes and probes[-1].stop == sequence:  # always on a path that carries no data, which may never answer
            self.probe_sequences = (*probes[:-1], range(probes[-1].start, sequence + 1))
        else:
            self.probe_sequences = (*probes[1 - MAX_PROBE_RANGES :], range(sequence, sequence + 1))
        return sequence

    def on_report(self, sequence: int) -> bool:
        """Note the highest sequence that was reported; return whether it is a probe's."""
        self.reported_sequence = sequence
        if not self.probe_sequences:
            return False
        probe, above = False, sequence + 1
        for probes in self.probe_sequences:
            probe = probe or sequence in probes
        left = [range(max(probes.start, above), probes.stop) for probes in self.probe_sequences]
        self.probe_sequences = tuple([probes for probes in left if probes])
        return probe

    @property
    def mtu_suspect(self) -> bool:
        """Whether it must answer a full-size probe before it carries data again."""
        return self._size_losses is not None and self._size_losses.is_suspect

    @property
    def size_losses(self) -> SizeLosses:
        """The row of losses of full packets. Ask `lost_in_row` first: most paths have none, and no memory for one."""
        if self._size_losses is None:
            self._size_losses = SizeLosses()
        return self._size_losses

    @property
    def lost_in_row(self) -> int:
        """Full packets that were lost in a row."""
        return 0 if self._size_losses is None else self._size_losses.packets

    def apply(self, event: PathEvent) -> None:
        """Change its state by an event."""
        before, self.state = self.state, TRANSITIONS[self.state, event]
        if self.state is PathState.QUARANTINED is not before:
            self.counters.quarantines += 1

    def on_probe_sent(self, *, now: float, alone: bool) -> int:
        """Return the path sequence of a probe that is due; if the previous one was not answered, apply a TIMEOUT.

        It is of full size (`full_probes`) if the path is MTU-suspect. `alone`: no path is active, so all data waits for
        an answer, and the probe interval does not grow.
        """
        if self.probes_unanswered:
            self.apply(PathEvent.TIMEOUT)
            self.counters.timeouts += 1
            if not alone:
                self.probe_interval_s = min(self.probe_interval_s * 2, MAX_PROBE_INTERVAL_S)
        self.probes_unanswered += 1
        self.probe_at = now + self.probe_interval_s
        sequence = self.allocate_probe_sequence()
        if self.mtu_suspect:
            self.full_probes = (*self.full_probes[1 - FULL_PROBES :], sequence)
        return sequence
