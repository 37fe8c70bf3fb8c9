"""The sending half of a peer: it takes work requests, sends bursts, and processes acknowledgements.

1. Messages are packetized in the order of `send.queue`, and may complete in any order. A send starts only when all
   of it fits into the credit granted by the receiver, so that partially sent messages cannot block each other.
2. Retransmissions go before new data, and on another path than the one that lost the packet.
3. The congestion controller decides how much may be in flight, up to an inflight limit; the pacer when it is sent; the
   path selector on which path.
4. While no path is active only probes are sent; the first one answered makes its path active again (see `paths.table`).
"""

from __future__ import annotations

import math
from random import Random
from typing import Final

from srd.proto.base.pacer import Pacer
from srd.proto.base.security import PacketProtection
from srd.proto.base.seqset import mask, ranges
from srd.proto.config import MAX_FLOWS, ProtocolConfig
from srd.proto.congestion.delay import MajorityDelay
from srd.proto.congestion.limits import InflightLimit, SendLimit
from srd.proto.congestion.queueing import Queueing
from srd.proto.events import EventQueue
from srd.proto.outgoing.flow_control import Credit
from srd.proto.outgoing.inflight import Inflight, InflightBurst, LostRange, PsnRange
from srd.proto.outgoing.message import OutgoingMessage, max_packets
from srd.proto.paths.one_way import OneWayDelay
from srd.proto.paths.path import Path, PathState
from srd.proto.paths.rack import RackState, detect_losses, probe_timeout_s
from srd.proto.paths.rtt import PeerRtt, RttEstimator, WindowedMin
from srd.proto.paths.selector import PathSelector
from srd.proto.paths.table import PathTable
from srd.proto.paths.validation import AddressValidation
from srd.proto.peer_trace import PeerTrace
from srd.proto.send.pull_limit import PullLimit
from srd.proto.send.queue import SendQueue
from srd.proto.wire.control import (
    NO_ACK_PATH,
    Ack,
    PathReport,
    Pull,
    PullRequest,
    bitmap_room_bytes,
    max_reports,
)
from srd.proto.wire.data import (
    ABORTED,
    HEADER_BYTES,
    MAX_BURST_PACKETS,
    MAX_DATAGRAM_BYTES,
    MAX_TRAIN_PACKETS,
    NOT_READY,
    Burst,
)
from srd.proto.wire.protected import TAG_BYTES

BURSTS_PER_WINDOW: Final = 16
"""A burst is at most this fraction of the window, so that a window is spread over paths and not sent to one queue. The
limit does not apply to a CPU-limited sender (see `SendLimit`), whose bursts cost less per packet the longer they
are."""
MAX_BURST_S: Final = 0.00005
"""A sender that its window has not limited lately may also send as one burst what passes, at a window in the smallest
round trip, in the time that a packet waits in the receiving host at least, and in this time at most. The burst's last
packet then waits little longer for the first ones than it would wait there anyway, and each burst costs a system call
at both ends. (TCP sizes its bursts likewise, by a millisecond at the pacing rate: tcp_tso_autosize.)"""
ACK_DELAY_WINDOW_S: Final = 1.0
"""Time in which packets wait for at least the time of the constant above."""
ABORT_PSNS: Final = 2
"""PSNs of the window reserved for messages that are aborted while partially packetized, beside those of the flows that
take turns: the send, and the message that begins next (see `send.queue`)."""
WINDOW_PER_FLOWS: Final = 8
"""Packets of the window for each flow that may take turns, as the abort of each takes one."""

NOT_LIMITED: Final = 0
BY_INFLIGHT_LIMIT: Final = 1
BY_WINDOW: Final = 2
"""Or by pacing, or since no path is active."""
BY_WORK: Final = 3
"""By what there is to send: the application's requests, the receiver's credit and pulls, room for PSNs."""


class Sender:
    """State of everything this end sends to one peer."""

    __slots__ = (
        "_active", "_addresses", "_all_timed_out_at", "_burst_packets", "_check_losses_at", "_config", "_context",
        "_datagram_bytes", "_inflight", "_inflight_limit", "_lost", "_min_ack_delay", "_pacer", "_probe_turn",
        "_protection", "_pull_limit", "_rack", "_rng", "_rtt", "_selector", "_send_limit", "_sent_bytes",
        "_starts_long", "_table", "_tail_probes", "_trace", "_train_packets", "_wake_at", "_window_packets",
        "controller", "is_held", "max_message_bytes", "packets", "paths", "queue", "queueing", "retransmitted",
        "segment_bytes",
    )  # fmt: skip

    def __init__(
        self,
        peer: int,
        *,
        config: ProtocolConfig,
        events: EventQueue,
        addresses: AddressValidation,
        context: int,
        datagram_bytes: int,
        ack_bytes: int,
        burst_bytes: int | None,
        protection: PacketProtection | None,
        credit_bytes: int,
        credit_messages: int,
        max_message_bytes: int,
        window_packets: int,
        inflight_limit: InflightLimit,
        rng: Random,
        trace: PeerTrace | None = None,
    ) -> None:
        """`datagram_bytes`: header and payload; `ack_bytes`: longest ACK; `burst_bytes`: longest burst, None: any."""
        self._table = PathTable(config, trace=trace)
        self.paths, self._active = self._table.all, self._table.active
        self.controller = (config.controller or MajorityDelay)(config, packet_bytes=datagram_bytes)
        self.segment_bytes = datagram_bytes - HEADER_BYTES
        # A message starts only when all of it is granted, so one larger than the whole credit could never start.
        self.max_message_bytes = min(max_message_bytes, credit_bytes)
        self.packets = self.retransmitted = 0
        self.is_held = self._starts_long = False  # see `poll_burst`, `paths_start_with`
        self._config, self._protection, self._trace = config, protection, trace
        # An ack must have bits for the whole window: packets without a bit would be declared lost.
        bitmap_bytes = bitmap_room_bytes(ack_bytes, reports=max_reports(ack_bytes))
        self._window_packets = min(config.window_packets, window_packets, 8 * bitmap_bytes)
        self._addresses, self._context = addresses, context
        self._datagram_bytes = datagram_bytes
        most = MAX_BURST_PACKETS if burst_bytes is None else burst_bytes // (datagram_bytes + TAG_BYTES)
        self._burst_packets = max(min(most, MAX_BURST_PACKETS), 1)
        self._train_packets = min(MAX_DATAGRAM_BYTES // datagram_bytes, MAX_TRAIN_PACKETS)  # one segment train
        self._selector, self._pacer = PathSelector(rng=rng), Pacer(depth_s=config.pacing_depth_s)
        self._inflight_limit, self._rng = inflight_limit, rng
        self._pull_limit: PullLimit | None = None  # from the first PULL on
        self._sent_bytes = 0  # data packets with their headers, as the receiver counts them
        self._inflight = Inflight()
        self._lost = self._inflight.lost
        credit = Credit(credit_bytes, granted_messages=credit_messages, retries=config.rnr_retry)
        flows = max(min(MAX_FLOWS, self._window_packets // WINDOW_PER_FLOWS), 1)
        self.queue = SendQueue(
            peer, inflight=self._inflight, credit=credit, events=events, segment_bytes=self.segment_bytes,
            max_partial_flows=flows,
        )  # fmt: skip
        self._tail_probes: tuple[Path, ...] = ()  # paths to send a tail loss probe on
        self._probe_turn = 0  # keepalive probes sent in turn, each over another path
        self._all_timed_out_at = math.inf  # when the last active path timed out; infinite while one is active
        self._wake_at = math.inf  # when to poll for a burst again, if nothing happens
        self._check_losses_at = math.inf  # not later than the first loss deadline of any path
        self._rack, self._rtt = RackState(jitter_s=config.min_delay_target_s), PeerRtt(initial_s=config.initial_rtt_s)
        self.queueing = Queueing(self._rtt, controller=self.controller)
        self._send_limit = SendLimit()
        self._min_ack_delay = WindowedMin()

    @property
    def inflight_bytes(self) -> int:
        """Bytes sent on active paths that are neither acknowledged nor lost."""
        return self._table.inflight_bytes

    @property
    def unsent_bytes(self) -> int:
        """Bytes of packets that were not sent yet and may be, with headers; of a long queue a part."""
        return self.queue.backlog_bytes

    @property
    def idle(self) -> bool:
        """Whether every request is done."""
        return not self.queue.count

    @property
    def awaits_ack(self) -> bool:
        """Whether anything that was packetized is not acknowledged."""
        return self._inflight.next_psn > self._inflight.base

    @property
    def rtt_s(self) -> float:
        """Smoothed round trip of the peer, over the active paths that are in use."""
        return self._rtt.smoothed_s

    @property
    def measured_rtt_s(self) -> float:
        """The same, and not less than the smallest; infinite before one was measured."""
        return max(self._rtt.smoothed_s, self._rtt.min_s)

    def mtu_blackhole_since(self) -> float:
        """Since when no path carries full-size packets, while smaller ones may pass; infinite while one does."""
        return self._all_timed_out_at if self._table.mtu_suspect else math.inf

    @property
    def credit_blocked(self) -> bool:
        """Whether only the receiver's credit is missing: its grant may have been lost."""
        return not self.inflight_bytes and self.queue.needs_credit

    def on_handshake_rtt(self, round_trip_s: float, *, now: float) -> None:
        """Use the round trip of the handshake as the first sample: no data of this end was queued yet."""
        self._table.set_initial_rtt(round_trip_s)
        self._rtt.smoothed_s = round_trip_s
        self._rtt.observe(round_trip_s, now=now)

    def paths_start_with(self, round_trip_s: float) -> None:
        """Until the first sample time out no packet before so long a round trip: the handshake's may have been."""
        self._table.set_initial_rtt(round_trip_s)
        self._starts_long = True

    # -- acknowledgements ---------------------------------------------------------------------------------------

    def handle_ack(self, ack: Ack, *, now: float, received_at: float) -> bool:
        """Process an ack; return whether it answers anything that was sent. Raises PacketError if it cannot be true."""
        reported = [self._table.find_untrusted(report) for report in ack.reports]
        acked_packets, acked_bytes, done = self._inflight.acknowledge(ack.cumulative, bitmap=ack.bitmap)
        self.queue.credit.grant(ack.credit_bytes, messages=ack.credit_messages)
        is_newest = False
        for (path, sequence), report in zip(reported, ack.reports, strict=True):
            if sequence > path.reported_sequence:  # else the report was repeated, or its ack was reordered
                self._on_report(path, report, sequence=sequence, now=now, received_at=received_at)
                is_newest = True
            if path.transmissions:
                self._detect_losses(path, now=now)
        self._on_ack_path((ack.path, ack.remote_path), is_sample=is_newest, now=now)
        if not self._table.inflight_bytes and len(self._active) == len(self.paths):
            self._check_losses_at = math.inf  # nothing is in flight on any path
        if acked_bytes:
            if now >= self._rtt.refresh_at:
                self._rtt.refresh([path.rtt for path in self._active], now=now)
                self._rack.decay(now=now, rtt_s=self.rtt_s)
            rtt_s, ack_wait_s = self.rtt_s, now - received_at
            min_rtt_s = self._rtt.min_s
            self._inflight_limit.on_ack(now=now, acked_bytes=acked_bytes, rtt_s=rtt_s, min_rtt_s=min_rtt_s)
            # On a long path a window above the inflight limit would need a round trip for each halving to apply again.
            limited = self._send_limit.cwnd_limited(now, rtt_s=rtt_s) and not self._inflight_limit.path_full
            self.controller.on_ack(
                now=now, acked_bytes=acked_bytes, rtt_s=rtt_s, ack_wait_s=ack_wait_s, cwnd_limited=limited
            )
        self._inflight_limit.update(self._table.inflight_bytes)
        if self._trace is not None:
            self._trace.ack_received(ack, acked_packets=acked_packets, acked_bytes=acked_bytes, now=now)
            self._trace_metrics("ack", now=now)
        if ack.flags & NOT_READY:
            self.controller.on_spurious_loss()  # the receiver dropped them, not the network
        if ack.flags & NOT_READY and not acked_bytes:
            self._on_rnr(now=now)
        elif acked_bytes and self.queue.credit.retry_at:
            self.queue.credit.on_progress()
        self.queue.on_acknowledged(done)
        return is_newest or acked_packets > 0 or bool(ack.flags & NOT_READY)

    def _on_ack_path(self, ack_path: tuple[int, int], *, is_sample: bool, now: float) -> None:
        """Note over which ack path an ack came; an ack that came with data came over none."""
        if ack_path == NO_ACK_PATH:
            return
        if self.queueing.on_ack(ack_path, is_sample=is_sample, jitter_s=self._rack.jitter_s, now=now) and self._active:
            self._tail_probes += (self._active[0],)

    @property
    def retry_s(self) -> float:
        """Back-off before the next try after the receiver was not ready."""
        least_s = max(4 * self.rtt_s, self._config.rnr_timer_s)
        return min(least_s * (1 << min(self.queue.credit.rnr_since_grant, 16)), self._config.probe_after_s)

    def _on_rnr(self, *, now: float) -> None:
        """Process NOT_READY: the receiver dropped packets that it had granted memory for."""
        if self.queue.credit.on_rnr(now=now, wait_s=self.retry_s) and not self.queue.fail_dropped():
            self._pacer.hold(until=self.queue.credit.retry_at)

    def _on_report(self, path: Path, report: PathReport, *, sequence: int, now: float, received_at: float) -> None:
        if report.duplicates != path.counters.duplicates & 0xFFFF:
            path.counters.duplicates += (again := report.duplicates - path.counters.duplicates & 0xFFFF)
            if self._rack.on_duplicates(again, now=now, rtt_s=self.rtt_s):
                self.controller.on_spurious_loss()
        reported, marked = sequence - path.reported_sequence, 0.0
        if report.ecn_ce != path.counters.ecn_ce & 0xFFFF:
            path.counters.ecn_ce += (new := report.ecn_ce - path.counters.ecn_ce & 0xFFFF)
            marked = min(new / reported, 1.0)
        self._selector.on_ack(path, packets=reported)
        probe = path.on_report(sequence)
        rtt_us = (int(received_at * 1e6) - report.sent_us & 0xFFFFFFFF) - report.ack_delay_us
        if not 0 <= rtt_us < 60_000_000:
            return  # a clock jumped; the next report gives a sample
        is_long = not probe and path.carries_long(sequence, least_bytes=self._datagram_bytes // 2)
        is_least = self._rtt.takes(is_long=is_long, now=now)
        path.rtt.update(rtt_us / 1e6, now=now, is_least=is_least, least_since=self._rtt.long_since)
        if self._starts_long:  # lost HELLOs may have made it seem long
            self._table.set_initial_rtt(max(path.rtt.latest_s, self._config.initial_rtt_s))
            self._starts_long = False
        self._rtt.observe(path.rtt.latest_s, now=now)
        sent_at = received_at - (rtt_us + report.ack_delay_us) / 1e6
        path.newest_acked_sent_at = sent_at
        self._min_ack_delay.observe(report.ack_delay_us / 1e6, now=now, window_s=ACK_DELAY_WINDOW_S)
        self._rack.on_report(sent_at, rtt_s=rtt_us / 1e6, ack_delay_s=report.ack_delay_us / 1e6)
        if path.state is not PathState.ACTIVE:
            self._on_answer(path, sequence=sequence, now=now)
        if self._all_timed_out_at < math.inf:
            if sent_at < self._all_timed_out_at:  # the acknowledgement was late, not missing
                self.controller.on_spurious_loss()
            if self._active:
                self._all_timed_out_at = math.inf
        if self._trace is not None:  # not a call each for what nobody records
            self._trace_sample(path, ack_delay_us=report.ack_delay_us, now=now)
        self.queueing.on_report(path, report, rtt_us=rtt_us, marked=marked, is_probe=probe, now=now)

    def _on_answer(self, path: Path, *, sequence: int, now: float) -> None:
        """Process a report of a path that is not active; one whose MTU is suspected has to deliver that size."""
        passes = path.lost_in_row > 0 and (path.size_losses.had(sequence) or path.carried_full(sequence))
        if passes and self._rack.lost_in_row:
            self._rack.black_hole.reset()
        if passes or not path.mtu_suspect or sequence in path.full_probes:
            self._table.on_answer(path, now=now)

    def acknowledged(self, first: int, *, count: int) -> bool:
        """Whether any of these PSNs was acknowledged."""
        return self._inflight.missing(first, count=count) != mask(count)

    # -- pulls --------------------------------------------------------------------------------------------------

    @property
    def asks(self) -> bool:
        """Whether the receiver limits what is sent: it may have to be asked."""
        return self._pull_limit is not None and self._pull_limit.applies

    def handle_pull(self, pull: Pull, *, now: float) -> None:
        """Process a PULL."""
        if self._pull_limit is None:
            self._pull_limit = PullLimit(sent_bytes=self._sent_bytes, rng=self._rng)
        self._pull_limit.on_pull(pull, now=now, rtt_s=self.rtt_s)

    def poll_request(self, *, now: float) -> PullRequest | None:
        """Return the request for a PULL that is due."""
        limit = self._pull_limit
        if limit is None or not limit.applies or self._pull_room_packets(limit, self._next(), now=now):
            return None
        if now < limit.ask_at:
            return None
        lost_bytes = sum(lost.count * lost.psns.packet_bytes for lost in self._lost)
        self._probe_turn += 1
        paths = self._active or self._table.probed
        return limit.request(
            context=self._context,
            backlog_bytes=lost_bytes + self.queue.backlog_bytes,
            path=paths[self._probe_turn % len(paths)].index,
            now=now,
        )

    def _pull_room_packets(self, limit: PullLimit, message: OutgoingMessage | None, *, now: float) -> int:
        """Return how many packets the receiver's limit allows of what was lost, or of `message`; some if there is none.

        Without room, note that they wait.
        """
        room = MAX_BURST_PACKETS
        if self._lost or message is not None:
            packet_bytes = self._lost[0].psns.packet_bytes if message is None or self._lost else message.packet_bytes
            room = limit.room_packets(packet_bytes, inflight_bytes=self._table.inflight_bytes)
        limit.note_room(room, now=now, rtt_s=self.rtt_s)
        return room

    # -- loss and timeouts --------------------------------------------------------------------------------------

    def _detect_losses(self, path: Path, *, now: float) -> None:
        """Detect lost bursts of a path."""
        before = path.inflight_bytes
        min_rto_s = self._config.min_rto_s
        losses = detect_losses(path, inflight=self._inflight, rack=self._rack, now=now, min_rto_s=min_rto_s)
        if path.state is PathState.ACTIVE:
            self._table.inflight_bytes -= before - path.inflight_bytes
        if losses is None:
            return
        if losses.lost:
            lost, left = losses.lost_bytes, self._table.inflight_bytes
            if lost:
                self.controller.on_loss(now=now, lost_bytes=lost, inflight_bytes=left, by_timeout=losses.timed_out)
            self._on_lost(path, losses.lost, now=now)
        if self._rack.black_hole.is_found:
            self._on_black_hole(now=now)
        elif (losses.timed_out or path.mtu_suspect) and path.state is PathState.ACTIVE:
            self._on_path_timeout(path, now=now)
        if losses.wants_probe:
            self._tail_probes += (path,)
        if losses.check_at is not None and losses.check_at < self._check_losses_at:
            self._check_losses_at = losses.check_at

    def _on_lost(self, path: Path, lost: list[tuple[InflightBurst, int]], *, now: float) -> None:
        if self._pull_limit is not None:
            self._pull_limit.on_lost()
        for transmission, missing in lost:
            for first, count in ranges(missing):
                self._lost.append(LostRange(transmission.psns, transmission.first + first, count, path.index))
        if self._trace is not None:
            for burst, missing in lost:
                self._trace.packets_lost(
                    path.index,
                    path_sequence=burst.path_sequence,
                    first_psn=burst.first,
                    packets=missing.bit_count(),
                    by_timeout=burst.last_sequence > path.reported_sequence,
                    now=now,
                )
            self._trace_metrics("loss", now=now)

    def _on_path_timeout(self, path: Path, *, now: float) -> None:
        self._table.on_timeout(path, now=now)
        if not self._active:
            self.controller.on_all_paths_timeout(now=now)
            self._all_timed_out_at = now
        self._trace_metrics("timeout", now=now)

    def _on_black_hole(self, *, now: float) -> None:
        """Suspect the MTU of all paths: none carries data before it has answered a full-size probe.

        None did since the first of these packets was sent; but probes have half of the time in which one must answer.
        """
        since = max(self._rack.black_hole.began_at, now - self._config.unresponsive_after_s / 2)
        self._rack.black_hole.reset()
        self._table.open_all()
        for path in self.paths:
            path.size_losses.suspect()
        for path in self._active.copy():
            self._on_path_timeout(path, now=now)
        self._all_timed_out_at = since

    def _trace_sample(self, path: Path, *, ack_delay_us: int, now: float) -> None:
        if self._trace is not None:
            self._trace.path_sampled(
                path.index,
                latest_s=path.rtt.latest_s,
                smoothed_s=path.rtt.smoothed_s,
                min_s=path.rtt.min_s,
                ack_delay_us=ack_delay_us,
                ecn_ce=path.counters.ecn_ce,
                now=now,
            )

    def _trace_metrics(self, trigger: str, *, now: float) -> None:
        if self._trace is not None:
            window_bytes, inflight_bytes = self.controller.window_bytes, self._table.inflight_bytes
            self._trace.metrics(window_bytes, inflight_bytes=inflight_bytes, rtt_s=self.rtt_s, trigger=trigger, now=now)

    def handle_timeout(self, *, now: float) -> None:
        """Fail overdue requests, and detect losses when that is due."""
        self._wake_at = math.inf
        self.queue.fail_overdue(now=now)
        if now >= self._check_losses_at:
            self._check_losses_at = math.inf
            for path in self.paths:
                if path.transmissions:
                    self._detect_losses(path, now=now)
            self._inflight_limit.update(self._table.inflight_bytes)

    def poll_timeout(self, *, now: float) -> float | None:
        """When `handle_timeout` or `poll_burst` is to be called again, if nothing arrives."""
        at = now if self._tail_probes else self._check_losses_at
        at = min(at, self.queue.deadline_at, self._table.probe_at(), self._wake_at)
        if self._pull_limit is not None and self._pull_limit.applies:
            at = min(at, self._pull_limit.ask_at)
        return None if at == math.inf else max(at, now)

    def poll_probe(self, *, now: float) -> tuple[Path, int] | None:
        """Return a path that is to be probed now, and the probe's path sequence."""
        if self._tail_probes:
            path, self._tail_probes = self._tail_probes[0], self._tail_probes[1:]
            return path, path.allocate_probe_sequence()
        if not self._table.probed:  # the common case
            return None
        return self._table.poll_probe(
            now=now, packets_per_s=self.controller.bytes_per_s(self.rtt_s) / self._datagram_bytes
        )

    @property
    def has_active_path(self) -> bool:
        """Whether any path carries data."""
        return bool(self._active)

    def has_used(self, path: int) -> bool:
        """Whether anything was sent over the path of this number."""
        return path < len(self.paths) and self.paths[path].next_sequence > 0

    def probe_any(self, *, round_robin: bool = False) -> tuple[Path, int]:
        """Return the path and sequence of a keepalive probe: the last acknowledged path; `round_robin`: all in turn."""
        path = self._selector.last_acked
        if round_robin or path is None or path.state is not PathState.ACTIVE:
            self._probe_turn += 1
            self._table.open_next()
            paths = self._active or self._table.probed
            path = paths[self._probe_turn % len(paths)]
        return path, path.allocate_probe_sequence()

    def on_moved(self, *, now: float) -> None:
        """Note that the peer has another address: nothing is known of the way there (RFC 9000, section 9.4)."""
        self._rtt = PeerRtt(initial_s=self._config.initial_rtt_s)
        self.controller = (self._config.controller or MajorityDelay)(self._config, packet_bytes=self._datagram_bytes)
        self.queueing = Queueing(self._rtt, controller=self.controller)
        for path in self.paths:
            path.rtt, path.one_way = RttEstimator(initial_s=self._config.initial_rtt_s), OneWayDelay()
        for path in self._active.copy():
            self._on_path_timeout(path, now=now)
        self._inflight_limit.update(self._table.inflight_bytes)
        for path in self._table.probed:
            self._table.probe_now(path, now=now)

    def on_valid_address(self, remote_path: int, *, now: float) -> None:
        """Note that an address of that path of the peer was validated: probe the paths that lead there now."""
        for path in self._table.probed:
            if self._addresses.leads_to(path.index, remote_path=remote_path):
                self._table.probe_now(path, now=now)

    def probe_path(self, number: int) -> tuple[Path, int]:
        """Return a primary path, and the path sequence of a probe over it."""
        self._table.open_all()
        return (path := self.paths[number]), path.allocate_probe_sequence()

    # -- transmission -------------------------------------------------------------------------------------------

    def poll_burst(self, *, now: float, most_packets: int = MAX_BURST_PACKETS) -> Burst | None:
        """Return the next burst that window, pacing and credit allow, of `most_packets` at most.

        With 0 it returns None, and `is_held` is whether there would have been one.
        """
        message = self._next()
        limit, room = self._pull_limit, MAX_BURST_PACKETS
        if limit is not None and limit.applies:
            room = self._pull_room_packets(limit, message, now=now)
        packets, self._wake_at, limited_by = self._decide(message, room=room, now=now)
        self.is_held = packets > 0 and not most_packets
        if self.is_held:
            return None
        if packets:
            most_packets = min(most_packets, room)
            packets = min(packets, most_packets)
            if self._lost and (burst := self._retransmit(packets, most_packets=most_packets, now=now)) is not None:
                return burst
            if message is not None:
                return self._send_new(message, packets, most_packets=most_packets, now=now)
            limited_by = BY_WORK
        if limited_by == BY_WINDOW:
            self._send_limit.on_limited(now)
        elif limited_by == BY_WORK:
            self._send_limit.on_app_limited()
            if limit is not None and message is None and not self._lost and self.idle:
                limit.on_idle()
        return None

    def _decide(self, message: OutgoingMessage | None, *, room: int, now: float) -> tuple[int, float, int]:
        """Return how many packets may be sent now, otherwise when to ask again though nothing happens, and the limit.

        It changes nothing. `message` is next, if any may be; `room`: what the receiver's limit allows of it.
        """
        window_bytes, inflight_bytes = int(self.controller.window_bytes), self._table.inflight_bytes
        has_work = message is not None or bool(self._lost)
        if self._inflight_limit.is_reached:
            return 0, math.inf, BY_INFLIGHT_LIMIT
        if not self._active or inflight_bytes >= self.controller.window_bytes:
            return 0, math.inf, BY_WINDOW
        if now < (release_at := self._pacer.release_at()):
            return 0, release_at if room and has_work else math.inf, BY_WINDOW
        if not room or not has_work:
            return 0, math.inf, BY_WORK
        window_packets = window_bytes // self._datagram_bytes
        packets = min(window_packets - inflight_bytes // self._datagram_bytes, self._burst_packets)
        if not self._send_limit.cpu_limited(now, rtt_s=self.rtt_s):
            packets = min(packets, self._paced_burst_packets(window_packets, now=now))
        return max(packets, 1), math.inf, NOT_LIMITED

    def _next(self) -> OutgoingMessage | None:
        """Return the message that is packetized next, if any may be."""
        return self.queue.head() if self._window_room_packets() > 0 else None

    def _whole_trains(self, packets: int) -> int:
        """Return the most packets, of so many, that are sent as whole segment trains, if that is any."""
        return packets - packets % self._train_packets if packets > self._train_packets else packets

    def _paced_burst_packets(self, window_packets: int, *, now: float) -> int:
        """Return the longest burst of a sender that is not CPU-limited."""
        spread = window_packets // BURSTS_PER_WINDOW
        waits_s = self._min_ack_delay.min_s  # infinite before the first report
        if waits_s == math.inf or self._send_limit.cwnd_limited(now, rtt_s=self.rtt_s):
            return spread
        min_rtt_s = max(self._rtt.min_s, 1e-6)  # in virtual time a handshake may take no time
        return max(spread, int(window_packets * min(waits_s, MAX_BURST_S) / min_rtt_s))

    @property
    def has_short_message(self) -> bool:
        """Whether what is packetized next is a send of one packet with room for an ack."""
        head = self.queue.head()
        return head is not None and head.takes_ack

    def _window_room_packets(self) -> int:
        window_packets = min(self._window_packets, self._inflight_limit.span_packets)
        reserved = ABORT_PSNS + self.queue.partial_flows
        return window_packets - reserved - (self._inflight.next_psn - self._inflight.base)

    def _retransmit(self, limit: int, *, most_packets: int, now: float) -> Burst | None:
        while self._lost:
            lost = self._lost.pop(0)
            psns, first, count = lost.psns, lost.first, lost.count
            missing, most = self._inflight.missing(first, count=count), 1
            if not psns.message.resent_singly:
                most = max_packets(self._whole_trains(limit), psns.packet_bytes, self._datagram_bytes)
                most = min(most, most_packets)
            for skip, length in ranges(missing):  # only the first is sent now
                sent = min(length, most)
                rest = skip + sent
                if missing >> rest:
                    self._lost.insert(0, LostRange(psns, first + rest, count - rest, lost.path))
                self._table.open_all()
                lost_on = None if lost.path is None else self.paths[lost.path]
                path = self._selector.select_for_retransmission(self._active, now=now, avoid=lost_on)
                if lost_on is None:
                    self._inflight.on_abort_sent(first)
                else:
                    path.counters.retransmitted += sent
                    path.counters.retransmitted_bytes += sent * psns.packet_bytes
                    self.retransmitted += sent
                return self._transmit(psns, first + skip, count=sent, path=path, now=now)
        return None

    def _send_new(self, message: OutgoingMessage, limit: int, *, most_packets: int, now: float) -> Burst:
        self._send_limit.on_app_resumed(now)
        if self._table.inflight_bytes:
            self._table.open_all()
        clocked = self._send_limit.cwnd_limited(now, rtt_s=self.rtt_s)
        packets = message.covered(self.queue.credit)
        if packets == 1 and not message.packetized and self.queue.count == 1:
            self._inflight_limit.on_short_message(now)
        if packets > 1:
            if packets > limit or clocked:  # else the message's end needs no burst of its own
                limit = self._whole_trains(limit)
            most = max_packets(limit, message.packet_bytes, self._datagram_bytes)
            packets = min(packets, most, most_packets, self._window_room_packets())
        path, count = self._selector.select(
            self._active, packets=packets, now=now, cwnd_limited=clocked, unequal=self.queueing.unequal
        )
        psns = self.queue.packetize(message, count=count)
        return self._transmit(psns, psns.first, count=count, path=path, now=now)

    def _transmit(self, psns: PsnRange, first: int, *, count: int, path: Path, now: float) -> Burst:
        sequence, size_bytes = path.allocate_sequences(count), count * psns.packet_bytes
        path.transmissions.append(InflightBurst(psns, first, count, sequence, now))
        self._table.on_sent(path, size_bytes)
        self._inflight_limit.update(self._table.inflight_bytes)
        self._sent_bytes += size_bytes
        if self._pull_limit is not None:
            self._pull_limit.sent_bytes = self._sent_bytes
        path.counters.packets += count
        path.counters.bytes += size_bytes
        self.packets += count
        if self._check_losses_at > now + path.rtt.smoothed_s:  # else the check is early enough, the common case
            self._check_losses_at = min(
                self._check_losses_at, now + probe_timeout_s(path, jitter_s=self._rack.jitter_s)
            )
        self._pacer.charge(size_bytes, now=now, rate_bytes_per_s=self.controller.bytes_per_s(self.rtt_s))
        message, index = psns.message, psns.index + first - psns.first
        number, offset, payload_offset, payload_bytes, segment_bytes, payload_addresses = message.content(
            index, count=count
        )
        address, from_path = self._addresses.destination(path.index)
        burst = Burst(
            address,
            path.index,
            sequence,
            self._context,
            first,
            count,
            int(now * 1e6) & 0xFFFFFFFF,
            number,
            message.wr.length,
            message.immediate,
            message.wr.offset + offset,
            message.wr.key,
            payload_offset,
            payload_bytes,
            segment_bytes,
            message.flags,
            payload_addresses,
            self._protection,
            from_path,
        )
        if (reason := message.abort_reason(index)) is not None:
            burst.flags, burst.immediate, burst.offset = message.flags | ABORTED, reason, message.end_psn_at(first)
            burst.payload_bytes = burst.segment_bytes = 0
        return burst
