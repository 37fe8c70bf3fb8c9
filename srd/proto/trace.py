"""What the core tells a trace: one event for everything that matters to who asks later why a transfer went as it did.

1. A core without a trace pays one `is None` test for a burst, an ack or a report, and nothing for a packet.
2. Times are the caller's `now`, so that in virtual time the same seed gives the same trace, to the byte.
3. The events below are the vocabulary; their names in a file are these in snake case. docs/trace.md lists them with
   their fields, and a test holds it against this module. Fields are integers, floats, texts and truth values only, with
   their unit in the name.

The scheme is qlog's (draft-ietf-quic-qlog-main-schema) with our own events. QUIC's do not fit: they know one path, and
packets instead of bursts. `peer_trace` makes the events, a sink such as `srd.qlog.writer` keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class PeerOpened:
    """The handshake is complete."""

    address: str
    incoming: bool
    """Whether the other end began it."""
    datagram_bytes: int
    """Size of a full data packet, header included."""
    paths: int
    """Source ports that this end sprays over."""


@dataclass(frozen=True, slots=True)
class PeerEnded:
    """The peer is gone."""

    status: str
    """Name of the completion status; OK is an orderly end."""
    reason: str


@dataclass(frozen=True, slots=True)
class BurstSent:
    """Consecutive packets of one message left on one path."""

    path: int
    path_sequence: int
    """Of the first packet."""
    psn: int
    """Of the first packet."""
    packets: int
    payload_bytes: int
    message: int
    kind: str
    """`send`, `read` (asks for it), `write`, `response` (what a read asked for), or `void`: of a message given up."""
    retransmission: bool
    """Whether these packets had been sent before."""
    inflight_bytes: int
    """Sent, and neither acknowledged nor lost, with this burst."""


@dataclass(frozen=True, slots=True)
class AckReceived:
    """An acknowledgement arrived; the figures are those after it."""

    cumulative: int
    """Every PSN below it is acknowledged."""
    acked_packets: int
    """Newly acknowledged by this ack."""
    acked_bytes: int
    """Newly acknowledged by this ack, headers included."""
    credit_bytes: int
    """Message bytes that may be started, counted from the peer's beginning."""
    cwnd_bytes: int
    """The congestion window."""
    inflight_bytes: int
    """Sent, and neither acknowledged nor lost."""
    rtt_us: float
    """Smoothed, over the active paths."""


@dataclass(frozen=True, slots=True)
class PathSampled:
    """A path report gave a round trip."""

    path: int
    rtt_us: float
    """Of this sample, without the time that the other end held the packet."""
    smoothed_us: float
    min_us: float
    """The least of the recent past: what the path takes without a queue."""
    ack_delay_us: int
    """From the other end's receipt of the packet to its report."""
    ecn_fraction: int
    """Packets that arrived with a congestion mark (CE), on this path so far."""


@dataclass(frozen=True, slots=True)
class PacketsLost:
    """Packets of one burst were declared lost."""

    path: int
    psn: int
    """Of the burst's first packet."""
    packets: int
    trigger: str
    """`reordering`: later packets of the path were reported; `timeout`: nothing was."""


@dataclass(frozen=True, slots=True)
class PathStateChanged:
    """A path is trusted more, or less."""

    path: int
    old: str
    new: str
    """`active`, `suspect`, `quarantined` or `reserve`."""


@dataclass(frozen=True, slots=True)
class CwndUpdated:
    """The congestion window changed for another reason than an ack."""

    cwnd_bytes: int
    trigger: str
    """`loss`, or `timeout`: a path, or all of them, answers no more."""


@dataclass(frozen=True, slots=True)
class ProbeSent:
    """A path was asked for a sign of life."""

    path: int
    path_sequence: int


@dataclass(frozen=True, slots=True)
class RequestPosted:
    """A work request has had its first turn, which follows its posting at once."""

    request: int
    kind: str
    """`send`, `read` or `write`."""
    message: int
    """Low 32 bits of its number."""
    length_bytes: int


@dataclass(frozen=True, slots=True)
class RequestCompleted:
    """A work request has ended."""

    request: int
    status: str
    """Name of the completion status."""
    latency_us: float
    """Since it was posted; 0 if it ended before its first turn."""


@dataclass(frozen=True, slots=True)
class DataReceived:
    """Packets of one burst arrived together."""

    path: int
    """The sender's."""
    path_sequence: int
    """Of the first packet, low 32 bits."""
    psn: int
    """Of the first packet."""
    packets: int
    payload_bytes: int
    kept_bytes: int
    """Of these, bytes that had not arrived before."""
    incomplete: bool
    """Whether part of a message, and not all of it, has landed now."""
    kind: str
    """As `BurstSent` has it."""


@dataclass(frozen=True, slots=True)
class AckSent:
    """An acknowledgement left."""

    cumulative: int
    """Every PSN below it was received."""
    reports: int
    """Path reports in it."""
    credit_bytes: int
    """Message bytes that the peer may start, counted from its beginning."""


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """All of a message has landed."""

    message: int
    length_bytes: int


@dataclass(frozen=True, slots=True)
class WriteReceived:
    """All of a write has been placed in registered memory here."""

    message: int
    length_bytes: int
    immediate: bool
    """Whether the application is told."""


@dataclass(frozen=True, slots=True)
class MessageAborted:
    """A message was given up, by its sender or its receiver: what had landed of it is forgotten."""

    message: int
    kind: str
    """`send`, `write`, `read` or `response`."""
    freed_bytes: int
    """Memory that it held."""


TraceEvent = (
    PeerOpened
    | PeerEnded
    | BurstSent
    | AckReceived
    | PathSampled
    | PacketsLost
    | PathStateChanged
    | CwndUpdated
    | ProbeSent
    | RequestPosted
    | RequestCompleted
    | DataReceived
    | AckSent
    | MessageReceived
    | WriteReceived
    | MessageAborted
)


class Trace(Protocol):
    """Takes the events of one endpoint. `record` must not raise: a trace that breaks may not break a transfer."""

    def record(self, event: TraceEvent, *, peer: int, now: float) -> None:
        """Take one event of a peer, by its number, at time `now` of the core's clock, in seconds."""
