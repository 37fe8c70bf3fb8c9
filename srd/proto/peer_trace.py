"""The trace of one peer: turns the core's state into the events of `trace`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from srd.proto import trace
from srd.proto.base.seqset import mask
from srd.proto.events import (
    BatchCompletion,
    Completion,
    Event,
    Extent,
    MessageReceived,
    MessagesReceived,
    PeerEnded,
    PeerOpened,
)
from srd.proto.trace import Trace, packet_number
from srd.proto.wire.control import Ack
from srd.proto.wire.data import ABORTED, IMMEDIATE, OPCODE_BITS, Address, Burst, Opcode, ReceivedBurst
from srd.proto.wire.status import Status
from srd.proto.work_request import WorkRequest

_KINDS: Final = tuple(opcode.name.lower() for opcode in sorted(Opcode))
"""Kind of a message, by its opcode."""
_LOW: Final = 0xFFFFFFFF
"""The low 32 bits, which headers carry."""
MAX_ARRIVED: Final = 4096
"""Most received bursts that an ack is recorded for: acks are due long before."""


class PeerTrace:
    """Writes the events of peer `number` to `sink`."""

    __slots__ = ("_arrived", "_number", "_posted_at", "_resent", "_sent", "_sink", "_window_bytes")

    def __init__(self, sink: Trace, *, number: int) -> None:
        self._sink = sink
        self._number = number
        self._posted_at: dict[int, float] = {}  # posting time of the open requests
        self._window_bytes = -1  # as last recorded
        # Bursts sent, and neither acknowledged nor lost, by number: first PSN and count. First transmissions, whose
        # PSNs ascend, and others.
        self._sent: dict[int, tuple[int, int]] = {}
        self._resent: dict[int, tuple[int, int]] = {}
        self._arrived: list[int] = []  # numbers of the bursts that arrived since the last ack

    def event(self, event: Event, *, datagram_bytes: int, paths: int, now: float) -> None:
        """Record an event that the owner of the core gets, too."""
        match event:
            case PeerOpened():
                self._record(trace.PeerOpened(_text(event.address), event.incoming, datagram_bytes, paths), now=now)
            case PeerEnded():
                self._record(trace.PeerEnded(event.status.name, event.reason), now=now)
            case Completion():
                latency_s = now - self._posted_at.pop(event.request, now)
                self._record(trace.RequestCompleted(event.request, event.status.name, _us(latency_s)), now=now)
            case BatchCompletion():
                for index in range(event.count):
                    self._record(trace.RequestCompleted(event.request + index, Status.OK.name, 0.0), now=now)
            case MessageReceived():
                self._record(trace.MessageReceived(event.message, event.length), now=now)
            case MessagesReceived():
                for index in range(event.count):
                    self._record(trace.MessageReceived(event.message + index & 0xFFFFFFFF, event.length), now=now)

    # -- sending ------------------------------------------------------------------------------------------------

    def request_posted(self, wr: WorkRequest, *, message: int, now: float) -> None:
        """Record the first turn of a work request, and the number of its message."""
        self._posted_at[wr.request] = now
        self._record(trace.RequestPosted(wr.request, _KINDS[wr.opcode], message, wr.length), now=now)

    def burst_sent(self, burst: Burst, *, retransmission: bool, inflight_bytes: int, now: float) -> None:
        """Record a burst that is handed out to be sent."""
        bursts = self._resent if retransmission else self._sent
        bursts[packet_number(burst.path, burst.path_sequence)] = (burst.psn, burst.count)
        self._record(
            trace.BurstSent(
                path=burst.path,
                path_sequence=burst.path_sequence & _LOW,
                psn=burst.psn,
                packets=burst.count,
                payload_bytes=burst.payload_bytes,
                message=burst.message & _LOW,
                offset=burst.offset,
                kind=_kind(burst.flags),
                retransmission=retransmission,
                inflight_bytes=inflight_bytes,
            ),
            now=now,
        )

    def ack_received(self, ack: Ack, *, acked_packets: int, acked_bytes: int, now: float) -> None:
        """Record an ack."""
        acked = self._take_acknowledged(ack.cumulative, ack.bitmap)
        event = trace.AckReceived(ack.cumulative, acked_packets, acked_bytes, ack.credit_bytes, acked)
        self._record(event, now=now)

    def _take_acknowledged(self, cumulative: int, bitmap: int) -> tuple[int, ...]:
        """Forget the bursts of which nothing is missing now; return their numbers."""
        end_psn = cumulative + bitmap.bit_length()
        acked = []
        for number, (psn, count) in self._sent.items():
            if psn >= end_psn:
                break
            if _is_acknowledged(psn, count, cumulative, bitmap):
                acked.append(number)
        for number, (psn, count) in self._resent.items():
            if _is_acknowledged(psn, count, cumulative, bitmap):
                acked.append(number)
        for number in acked:
            self._forget(number)
        return tuple(acked)

    def _forget(self, number: int) -> None:
        """Forget a burst, of which nothing is expected any more."""
        if self._sent.pop(number, None) is None:
            self._resent.pop(number, None)

    def path_sampled(
        self, path: int, *, latest_s: float, smoothed_s: float, min_s: float, ack_delay_us: int, ecn_ce: int, now: float
    ) -> None:
        """Record a path's latest round trip."""
        event = trace.PathSampled(path, _us(latest_s), _us(smoothed_s), _us(min_s), ack_delay_us, ecn_ce)
        self._record(event, now=now)

    def packets_lost(
        self, path: int, *, path_sequence: int, first_psn: int, packets: int, by_timeout: bool, now: float
    ) -> None:
        """Record a burst of a path that was just declared lost, from `first_psn` on; `packets` of it are missing."""
        self._forget(packet_number(path, path_sequence))
        trigger = "timeout" if by_timeout else "reordering"
        self._record(trace.PacketsLost(path, path_sequence & _LOW, first_psn, packets, trigger), now=now)

    def path_state(self, path: int, *, old: str, new: str, now: float) -> None:
        """Record a path's state, if it has changed."""
        if new != old:
            self._record(trace.PathStateChanged(path, old.lower(), new.lower()), now=now)

    def metrics(self, window_bytes: float, *, inflight_bytes: int, rtt_s: float, trigger: str, now: float) -> None:
        """Record the sending half's state: after an ack, and if the window differs from the value recorded last."""
        if trigger == "ack" or round(window_bytes) != self._window_bytes:
            self._window_bytes = round(window_bytes)
            self._record(trace.MetricsUpdated(self._window_bytes, inflight_bytes, _us(rtt_s), trigger), now=now)

    def probe_sent(self, path: int, *, path_sequence: int, now: float) -> None:
        """Record a probe."""
        self._record(trace.ProbeSent(path, path_sequence & _LOW), now=now)

    # -- receiving ----------------------------------------------------------------------------------------------

    def data_received(self, burst: ReceivedBurst, *, kept_bytes: int, incomplete: bool, now: float) -> None:
        """Record packets that arrived, of which so many bytes were new."""
        if len(self._arrived) < MAX_ARRIVED:
            self._arrived.append(packet_number(burst.path, burst.path_sequence))
        self._record(
            trace.DataReceived(
                path=burst.path,
                path_sequence=burst.path_sequence,
                psn=burst.psn,
                packets=burst.count,
                payload_bytes=burst.payload_bytes,
                message=burst.message & _LOW,
                offset=burst.offset,
                kept_bytes=kept_bytes,
                incomplete=incomplete,
                kind=_kind(burst.flags),
            ),
            now=now,
        )

    def write_received(self, burst: ReceivedBurst, *, now: float) -> None:
        """Record a write that this burst completes."""
        event = trace.WriteReceived(burst.message, burst.length, immediate=bool(burst.flags & IMMEDIATE))
        self._record(event, now=now)

    def message_aborted(self, burst: ReceivedBurst, *, released: Iterable[Extent], now: float) -> None:
        """Record a message that its sender aborted, and the pieces of it that are freed."""
        freed_bytes = sum(extent.length for extent in released)
        self._record(trace.MessageAborted(burst.message, _KINDS[burst.flags & OPCODE_BITS], freed_bytes), now=now)

    def message_discarded(self, message: int, *, opcode: int, released: Iterable[Extent], now: float) -> None:
        """Record a message that this end discarded, and the pieces of it that are freed."""
        freed_bytes = sum(extent.length for extent in released)
        self._record(trace.MessageAborted(message, _KINDS[opcode], freed_bytes), now=now)

    def ack_sent(self, ack: Ack, *, now: float) -> None:
        """Record an ack that is handed out to be sent."""
        acked, self._arrived = tuple(self._arrived), []
        self._record(trace.AckSent(ack.cumulative, len(ack.reports), ack.credit_bytes, acked), now=now)

    def _record(self, event: trace.TraceEvent, *, now: float) -> None:
        self._sink.record(event, peer=self._number, now=now)


def _kind(flags: int) -> str:
    """Return what a data packet with these flags is part of."""
    return "aborted" if flags & ABORTED else _KINDS[flags & OPCODE_BITS]


def _is_acknowledged(psn: int, count: int, cumulative: int, bitmap: int) -> bool:
    """Return whether nothing of these packets is missing."""
    behind = psn + count - cumulative
    if behind <= 0:
        return True
    first = max(psn - cumulative, 0)
    return bitmap >> first & mask(behind - first) == mask(behind - first)


def _text(address: Address) -> str:
    """Return an address as a string; in virtual time it may be any object."""
    if not isinstance(address, tuple):
        return str(address)
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _us(seconds: float) -> float:
    """Return microseconds, to a tenth: links of a few microseconds are simulated."""
    return round(seconds * 1e6, 1)
