"""The events of a qlog trace: everything that later explains how a transfer went.

1. A core without a trace pays one `is None` test for a burst, an ack or a report, and nothing for a packet.
2. Times are the caller's `now`, so that in virtual time the same seed gives the same trace, to the byte.
3. The events below are the complete list. Fields are integers, tuples of integers, floats, strings and booleans only,
   with their unit in the name.
4. A packet's number in a trace is made of its path and its path sequence: a retransmission has another one than the
   packet that was lost, and both ends give a packet the same. A burst has the number of its first packet.

`peer_trace` makes the events, a sink such as `srd.qlog.writer` stores them: `srd.qlog.schema` says as which events of
qlog. docs/trace.md lists them with their fields, and a test compares it with this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

PATH_BITS = 7
"""Bits of a path's number (`MAX_PATH_NUMBERS`)."""


def packet_number(path: int, path_sequence: int) -> int:
    """Return a packet's number in a trace: path sequence, low 32 bits, above the path (rule 4)."""
    return (path_sequence & 0xFFFFFFFF) << PATH_BITS | path


@dataclass(frozen=True, slots=True)
class PeerOpened:
    """The handshake is complete."""

    address: str
    incoming: bool
    """Whether the other end opened it."""
    datagram_bytes: int
    """Size of a full data packet, header included."""
    paths: int
    """Source ports that this end sprays over."""


@dataclass(frozen=True, slots=True)
class PortBound:
    """The source port of a path of this end's: of each when a peer opens, and of standby paths when it ends."""

    path: int
    port: int
    """Of UDP."""


@dataclass(frozen=True, slots=True)
class PeerEnded:
    """The peer has ended."""

    status: str
    """Name of the completion status; OK is an orderly end."""
    reason: str


@dataclass(frozen=True, slots=True)
class BurstSent:
    """Consecutive packets of one message were sent on one path."""

    path: int
    path_sequence: int
    """Of the first packet, low 32 bits."""
    psn: int
    """Of the first packet."""
    packets: int
    payload_bytes: int
    message: int
    """Low 32 bits of its number; of a batch, the first one's."""
    offset: int
    """Of the first packet's payload in the message."""
    kind: str
    """`send`, `read` (a request), `write`, `response` (to a read), or `aborted`: of an aborted message."""
    retransmission: bool
    """Whether these packets had been sent before."""
    inflight_bytes: int
    """Bytes sent, and neither acknowledged nor lost, including this burst."""


@dataclass(frozen=True, slots=True)
class AckReceived:
    """An acknowledgement arrived."""

    cumulative: int
    """Every PSN below it is acknowledged."""
    acked_packets: int
    """Newly acknowledged by this ack."""
    acked_bytes: int
    """Newly acknowledged by this ack, headers included."""
    credit_bytes: int
    """Message bytes that may be started, counted from the peer's beginning."""
    acked: tuple[int, ...]
    """Numbers of the bursts of which nothing is missing since this ack."""


@dataclass(frozen=True, slots=True)
class MetricsUpdated:
    """The state of the sending half after an ack; after losses and timeouts, if they changed the congestion window."""

    cwnd_bytes: int
    """The congestion window."""
    inflight_bytes: int
    """Bytes sent, and neither acknowledged nor lost."""
    rtt_us: float
    """Smoothed, over the active paths."""
    trigger: str
    """`ack`, `loss`, or `timeout`: a path, or all of them, timed out."""


@dataclass(frozen=True, slots=True)
class PathSampled:
    """A path report gave a round trip."""

    path: int
    rtt_us: float
    """This sample, without the ack delay of the other end."""
    smoothed_us: float
    min_us: float
    """Smallest of the recent past: the base round trip of the path."""
    ack_delay_us: int
    """From the other end's receipt of the packet to its report."""
    ecn_packets: int
    """Number of packets on this path that arrived with a congestion mark (CE) so far."""


@dataclass(frozen=True, slots=True)
class PacketsLost:
    """Packets of one burst were declared lost."""

    path: int
    path_sequence: int
    """Of the burst's first packet, low 32 bits."""
    psn: int
    """Of the burst's first packet."""
    packets: int
    """How many of the burst."""
    trigger: str
    """`reordering`: later packets of the path were reported; `timeout`: none were."""


@dataclass(frozen=True, slots=True)
class PathStateChanged:
    """A path changed its state."""

    path: int
    old: str
    new: str
    """`active`, `suspect`, `quarantined` or `reserve`."""


@dataclass(frozen=True, slots=True)
class ProbeSent:
    """A probe was sent on a path."""

    path: int
    path_sequence: int
    """Low 32 bits."""


@dataclass(frozen=True, slots=True)
class RequestPosted:
    """A work request had its first turn, which follows its posting at once."""

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
    """Time since it was posted; 0 if it ended before its first turn."""


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
    message: int
    """Low 32 bits of its number; of a batch, the first one's."""
    offset: int
    """Of the first packet's payload in the message."""
    kept_bytes: int
    """Of these, bytes that had not arrived before."""
    incomplete: bool
    """Whether some message has now landed only in part."""
    kind: str
    """As in `BurstSent`."""


@dataclass(frozen=True, slots=True)
class AckSent:
    """An acknowledgement was sent."""

    cumulative: int
    """Every PSN below it was received."""
    reports: int
    """Path reports in it."""
    credit_bytes: int
    """Message bytes that the peer may start, counted from its beginning."""
    acked: tuple[int, ...]
    """Numbers of the received bursts since the last ack (`DataReceived`)."""


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
    """Whether the application is notified."""


@dataclass(frozen=True, slots=True)
class MessageAborted:
    """A message was aborted by its sender or discarded by its receiver; what had landed of it is dropped."""

    message: int
    kind: str
    """`send`, `write`, `read` or `response`."""
    freed_bytes: int
    """Memory that is freed."""


TraceEvent = (
    PeerOpened
    | PortBound
    | PeerEnded
    | BurstSent
    | AckReceived
    | PathSampled
    | PacketsLost
    | PathStateChanged
    | MetricsUpdated
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
    """Receives the events of one endpoint. `record` must not raise: a broken trace may not break a transfer."""

    def record(self, event: TraceEvent, *, peer: int, now: float) -> None:
        """Record one event of a peer, by its number, at time `now` of the core's clock, in seconds."""
