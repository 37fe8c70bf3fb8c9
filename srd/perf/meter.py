"""Counters of one end's streams over time: intervals, and figures of the whole test. Times are seconds from its start.

A test begins twice if time is omitted at its start: the counters go on, and what was before does not count.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from srd.perf.stream import PerfStream, StreamSnapshot

MAX_RECORDS: Final = 100_000
"""Intervals that are kept, times streams: a day of one stream, a second each. Later ones are shown and not kept."""


@dataclass(frozen=True, slots=True)
class StreamInterval:
    """A stream in an interval."""

    number: int
    sends: bool
    size_bytes: int
    retransmits: int
    now: StreamSnapshot
    """At its end."""
    paths: int
    """That packets were sent on in it."""


@dataclass(frozen=True, slots=True)
class Interval:
    """All streams in an interval."""

    start_s: float
    end_s: float
    omitted: bool
    streams: tuple[StreamInterval, ...]

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class Total:
    """One end's figures of a stream over the whole test, in JSON's types: the server sends them."""

    number: int
    sends: bool
    seconds: float
    size_bytes: int
    retransmits: int = 0
    max_cwnd_bytes: int = 0
    max_snd_wnd_bytes: int = 0
    min_rtt_us: int = 0
    mean_rtt_us: int = 0
    max_rtt_us: int = 0
    paths: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """Processor time of a process, in percent of the time of the test."""

    total: float
    user: float
    system: float


@dataclass(slots=True)
class _Track:
    """What is kept of a stream."""

    base: StreamSnapshot
    last: StreamSnapshot
    max_cwnd_bytes: int = 0
    max_snd_wnd_bytes: int = 0
    rtts_us: int = 0
    samples: int = 0
    min_rtt_us: int = 0
    max_rtt_us: int = 0

    def note(self, now: StreamSnapshot) -> None:
        self.last = now
        self.max_cwnd_bytes = max(self.max_cwnd_bytes, now.cwnd_bytes)
        self.max_snd_wnd_bytes = max(self.max_snd_wnd_bytes, now.snd_wnd_bytes)
        if now.rtt_us:
            self.min_rtt_us = min(self.min_rtt_us or now.rtt_us, now.rtt_us)
            self.max_rtt_us = max(self.max_rtt_us, now.rtt_us)
            self.rtts_us += now.rtt_us
            self.samples += 1


def _paths(before: StreamSnapshot, now: StreamSnapshot) -> int:
    old = before.path_packets
    return sum(1 for path, count in enumerate(now.path_packets) if count > (old[path] if path < len(old) else 0))


@dataclass(slots=True)
class Meter:
    """The figures of one end."""

    streams: Sequence[PerfStream]
    intervals: list[Interval] = field(default_factory=list)
    _tracks: list[_Track] = field(default_factory=list)
    _zero_at: float = 0.0
    _last_at: float = 0.0
    _cpu: tuple[float, float] = (0.0, 0.0)
    _cpu_at: float = 0.0

    def start(self, now: float) -> None:
        """Begin to count, or begin again."""
        self._tracks = [_Track(snapshot, snapshot) for snapshot in (stream.snapshot() for stream in self.streams)]
        self._zero_at = self._last_at = now
        self._cpu, self._cpu_at = _cpu_s(), time.monotonic()

    def interval(self, now: float, *, omitted: bool = False) -> Interval:
        """Return what has happened since the last call, and keep it."""
        entries = []
        for stream, track in zip(self.streams, self._tracks, strict=True):
            before, snapshot = track.last, stream.snapshot()
            track.note(snapshot)
            entries.append(
                StreamInterval(
                    stream.number,
                    stream.sends,
                    snapshot.size_bytes - before.size_bytes,
                    snapshot.retransmits - before.retransmits,
                    snapshot,
                    _paths(before, snapshot),
                )
            )
        made = Interval(self._last_at - self._zero_at, now - self._zero_at, omitted, tuple(entries))
        self._last_at = now
        if len(self.intervals) * len(self.streams) < MAX_RECORDS:
            self.intervals.append(made)
        return made

    def totals(self) -> list[Total]:
        """Return the figures until the last interval."""
        return [
            Total(
                stream.number,
                stream.sends,
                self._last_at - self._zero_at,
                track.last.size_bytes - track.base.size_bytes,
                track.last.retransmits - track.base.retransmits,
                track.max_cwnd_bytes,
                track.max_snd_wnd_bytes,
                track.min_rtt_us,
                track.rtts_us // max(track.samples, 1),
                track.max_rtt_us,
                _paths(track.base, track.last),
            )
            for stream, track in zip(self.streams, self._tracks, strict=True)
        ]

    def load(self) -> Load:
        """Return this process's processor time since the start."""
        elapsed_s = max(time.monotonic() - self._cpu_at, 1e-9)
        user, system = (100 * (now - then) / elapsed_s for now, then in zip(_cpu_s(), self._cpu, strict=True))
        return Load(user + system, user, system)


def _cpu_s() -> tuple[float, float]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime, usage.ru_stime
