"""Summarises a trace: what each peer's paths carried and lost, and the stalls.

A stall is a time without progress while something was outstanding. For a sender, outstanding are the packets sent and
not acknowledged; a stall lasts from the last ACK of new data (or the first burst after an idle time) to the next. For a
receiver, outstanding is an incomplete message; a stall lasts from one landing of new bytes to the next. A stall that is
not over when the trace ends lasts to that end.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from srd.proto.trace import (
    AckReceived,
    BurstSent,
    DataReceived,
    MessageAborted,
    MessageReceived,
    MetricsUpdated,
    PacketsLost,
    PathSampled,
    PathStateChanged,
    PeerEnded,
    PeerOpened,
    PortBound,
    ProbeSent,
    RequestCompleted,
    TraceEvent,
    WriteReceived,
)
from srd.proto.wire.status import Status
from srd.qlog.reader import Record

STALLS = 5
"""Number of the longest stalls that are kept."""


@dataclass(slots=True)
class SentPath:
    """One path that this end sent over. Counts are in packets unless the name has another unit."""

    bursts: int = 0
    packets: int = 0
    payload_bytes: int = 0
    retransmitted: int = 0
    """Packets that were retransmissions."""
    lost: int = 0
    probes: int = 0
    state: str = "active"
    state_changes: int = 0
    rtt_at_s: list[float] = field(default_factory=list)
    rtt_us: list[float] = field(default_factory=list)


@dataclass(slots=True)
class ReceivedPath:
    """One path of the other end that packets were received from."""

    bursts: int = 0
    """Received bursts: packets of one burst that arrived together count once."""
    packets: int = 0
    payload_bytes: int = 0
    duplicate_bytes: int = 0
    """Payload bytes that had arrived before, or for which there was no memory."""


@dataclass(slots=True)
class LongestStalls:
    """The longest stalls."""

    longest: list[tuple[float, float]] = field(default_factory=list)
    """(length, beginning) in seconds, as a heap: the shortest of those kept is first."""
    _waiting_since: float | None = None

    def wait(self, at_s: float) -> None:
        """Note that something is outstanding from now on."""
        if self._waiting_since is None:
            self._waiting_since = at_s

    def progress(self, at_s: float, *, outstanding: bool) -> None:
        """Note progress; `outstanding`: whether anything is still outstanding."""
        if self._waiting_since is not None and at_s > self._waiting_since:
            heapq.heappush(self.longest, (at_s - self._waiting_since, self._waiting_since))
            if len(self.longest) > STALLS:
                heapq.heappop(self.longest)
        self._waiting_since = at_s if outstanding else None

    def ranked(self) -> list[tuple[float, float]]:
        """Return (beginning, length), longest first."""
        return [(began, length) for length, began in sorted(self.longest, reverse=True)]


@dataclass(slots=True)
class Loss:
    """Packets of one burst that were declared lost."""

    at_s: float
    path: int
    packets: int
    trigger: str


@dataclass(slots=True)
class PeerSummary:
    """One peer. A time series is two lists of equal length: times in seconds since the trace began, and values."""

    address: str = "?"
    incoming: bool = False
    ports: dict[int, int] = field(default_factory=dict)
    """The source port of each of this end's paths, by the path's number, as far as the trace has them."""
    began_s: float = 0.0
    ended_s: float = 0.0
    """Time of the last event."""
    end: str = ""
    """Status and reason of the peer's end; empty when the trace ends before it."""
    sent: dict[int, SentPath] = field(default_factory=dict)
    received: dict[int, ReceivedPath] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    resent: list[tuple[float, int]] = field(default_factory=list)
    """(time, packets) of each retransmission."""
    completed: dict[str, int] = field(default_factory=dict)
    """Number of completed requests, by status."""
    latencies_us: list[float] = field(default_factory=list)
    """Latencies of the requests that completed with OK."""
    writes: int = 0
    """Writes that landed completely in memory here."""
    aborted: int = 0
    """Messages that the other end aborted."""
    messages: int = 0
    """Messages that were received completely."""
    acks: int = 0
    acked_at_s: list[float] = field(default_factory=list)
    acked_bytes: list[int] = field(default_factory=list)
    """Bytes acknowledged until then, headers included."""
    inflight_at_s: list[float] = field(default_factory=list)
    inflight_bytes: list[int] = field(default_factory=list)
    """Bytes in flight after each burst and each ACK."""
    cwnd_at_s: list[float] = field(default_factory=list)
    cwnd_bytes: list[int] = field(default_factory=list)
    landed_at_s: list[float] = field(default_factory=list)
    landed_bytes: list[int] = field(default_factory=list)
    """New payload bytes that had landed until then."""
    send_stalls: LongestStalls = field(default_factory=LongestStalls)
    receive_stalls: LongestStalls = field(default_factory=LongestStalls)
    outstanding_packets: int = 0
    """Packets sent and not acknowledged."""

    def apply(self, event: TraceEvent, *, at_s: float) -> None:
        """Apply the next event."""
        self.ended_s = max(self.ended_s, at_s)
        match event:
            case BurstSent():
                self._on_burst_sent(event, at_s=at_s)
            case AckReceived():
                self._on_ack_received(event, at_s=at_s)
            case MetricsUpdated():
                self.cwnd_at_s.append(at_s)
                self.cwnd_bytes.append(event.cwnd_bytes)
                self._on_inflight(event.inflight_bytes, at_s=at_s)
            case PathSampled():
                path = self._path(event.path)
                path.rtt_at_s.append(at_s)
                path.rtt_us.append(event.rtt_us)
            case PacketsLost():
                self._path(event.path).lost += event.packets
                self.losses.append(Loss(at_s, event.path, event.packets, event.trigger))
            case DataReceived():
                self._on_data_received(event, at_s=at_s)
            case _:
                self._apply_rare(event)

    def _apply_rare(self, event: TraceEvent) -> None:
        match event:
            case PeerOpened():
                self.address, self.incoming = event.address, event.incoming
            case PortBound():
                self.ports[event.path] = event.port
            case PeerEnded():
                self.end = f"{event.status}, {event.reason}"
            case PathStateChanged():
                path = self._path(event.path)
                path.state = event.new
                path.state_changes += 1
            case ProbeSent():
                self._path(event.path).probes += 1
            case RequestCompleted():
                self.completed[event.status] = self.completed.get(event.status, 0) + 1
                if event.status == Status.OK.name:
                    self.latencies_us.append(event.latency_us)
            case MessageReceived():
                self.messages += 1
            case WriteReceived():
                self.writes += 1
            case MessageAborted():
                self.aborted += 1

    def finish(self) -> None:
        """End the running stalls, as no event will follow."""
        self.send_stalls.progress(self.ended_s, outstanding=False)
        self.receive_stalls.progress(self.ended_s, outstanding=False)

    def _path(self, number: int) -> SentPath:
        return self.sent.setdefault(number, SentPath())

    def _on_burst_sent(self, event: BurstSent, *, at_s: float) -> None:
        path = self._path(event.path)
        path.bursts += 1
        path.packets += event.packets
        path.payload_bytes += event.payload_bytes
        if event.retransmission:
            path.retransmitted += event.packets
            self.resent.append((at_s, event.packets))
        else:
            self.outstanding_packets += event.packets
        self.send_stalls.wait(at_s)
        self._on_inflight(event.inflight_bytes, at_s=at_s)

    def _on_inflight(self, inflight_bytes: int, *, at_s: float) -> None:
        self.inflight_at_s.append(at_s)
        self.inflight_bytes.append(inflight_bytes)

    def _on_ack_received(self, event: AckReceived, *, at_s: float) -> None:
        self.acks += 1
        before = self.acked_bytes[-1] if self.acked_bytes else 0
        self.acked_at_s.append(at_s)
        self.acked_bytes.append(before + event.acked_bytes)
        if event.acked_packets:
            self.outstanding_packets -= event.acked_packets
            self.send_stalls.progress(at_s, outstanding=self.outstanding_packets > 0)

    def _on_data_received(self, event: DataReceived, *, at_s: float) -> None:
        path = self.received.setdefault(event.path, ReceivedPath())
        path.bursts += 1
        path.packets += event.packets
        path.payload_bytes += event.payload_bytes
        path.duplicate_bytes += event.payload_bytes - event.kept_bytes
        if event.kept_bytes or not event.payload_bytes:
            before = self.landed_bytes[-1] if self.landed_bytes else 0
            self.landed_at_s.append(at_s)
            self.landed_bytes.append(before + event.kept_bytes)
            self.receive_stalls.progress(at_s, outstanding=event.incomplete)


def summarise(records: Iterable[Record]) -> dict[int, PeerSummary]:
    """Return each peer's summary, by its number, in the order of appearance."""
    peers: dict[int, PeerSummary] = {}
    for record in records:
        peer = peers.get(record.peer)
        if peer is None:
            peer = peers[record.peer] = PeerSummary(began_s=record.at_s)
        peer.apply(record.event, at_s=record.at_s)
    for peer in peers.values():
        peer.finish()
    return peers


INTERVALS = 10
"""Rows of the table: enough to see changes over time, few enough to read."""


@dataclass(slots=True)
class TraceInterval:
    """Sums of one interval, in packets unless the name has another unit."""

    begin_s: float
    """Time since the beginning of the trace."""
    acked_bytes: int = 0
    """Newly acknowledged bytes, headers included."""
    landed_bytes: int = 0
    """New payload bytes received."""
    reordered: int = 0
    """Packets declared lost because later packets of their path had been reported."""
    timed_out: int = 0
    """Packets declared lost by timeout."""
    resent: int = 0


def timeline(peer: PeerSummary) -> tuple[float, list[TraceInterval]]:
    """Return the length of an interval in seconds, and `INTERVALS` of them from the peer's first event to its last."""
    length_s = (peer.ended_s - peer.began_s) / INTERVALS
    rows = [TraceInterval(peer.began_s + index * length_s) for index in range(INTERVALS)]

    def at(time_s: float) -> TraceInterval:
        index = int((time_s - peer.began_s) / length_s) if length_s > 0 else 0
        return rows[min(max(index, 0), INTERVALS - 1)]

    for time_s, size_bytes in _steps(peer.acked_at_s, peer.acked_bytes):
        at(time_s).acked_bytes += size_bytes
    for time_s, size_bytes in _steps(peer.landed_at_s, peer.landed_bytes):
        at(time_s).landed_bytes += size_bytes
    for loss in peer.losses:
        if loss.trigger == "timeout":
            at(loss.at_s).timed_out += loss.packets
        else:
            at(loss.at_s).reordered += loss.packets
    for time_s, packets in peer.resent:
        at(time_s).resent += packets
    return length_s, rows


def _steps(times_s: Sequence[float], totals: Sequence[int]) -> list[tuple[float, int]]:
    """Return the increments of a running total."""
    return [(time_s, after - before) for time_s, (before, after) in zip(times_s, pairwise((0, *totals)), strict=True)]
