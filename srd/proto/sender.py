"""The sending half of a peer: work requests in, bursts out, acknowledgements back in.

1. Messages are cut in the order of `backlog`, and may finish in any. A send starts only when all of it fits into the
   credit granted by the receiver, so that half-started messages cannot starve each other.
2. What was lost goes before what is new, and on another path.
3. How much may be in flight is the congestion controller's word, to a limit; when, the pacer's; where, `spray`'s.
4. While no path is active nothing is sent but probes; the first that is answered brings its path back (see `paths`).
"""

from __future__ import annotations

import math
from random import Random

from srd.proto.batch import most_packets
from srd.proto.config import ProtocolConfig
from srd.proto.control import NO_WAY, NOT_READY, Ack, PathReport, bitmap_room_bytes, max_reports
from srd.proto.controllers import CONTROLLERS
from srd.proto.credit import Credit
from srd.proto.loss import Evidence, settle, usual_s
from srd.proto.outbox import Outbox
from srd.proto.pacing import Ceiling, Pacer, Progress
from srd.proto.path import Path, PathState
from srd.proto.paths import PathTable
from srd.proto.peer_trace import PeerTrace
from srd.proto.rtt import RoundTrip
from srd.proto.sent import SendRun, SentPackets, Transmission
from srd.proto.seqset import mask, ranges
from srd.proto.spray import Spray
from srd.proto.wire import HEADER_BYTES, MAX_BURST_PACKETS, MAX_DATAGRAM_BYTES, MAX_SERIES_PACKETS, VOID, Address, Burst

BURSTS_PER_WINDOW = 16
"""A burst is at most this share of the window, so that a window is spread over paths and not sent to one queue; but for
a sender that its processor limits (see `Progress`), whose bursts cost less the longer they are. To 100 peers with 4 KiB
each, where windows are a few packets: 45,000/55,000 -> 269,000/200,000 messages/s."""
VOID_PSNS = 2
"""PSNs of the window that are kept for messages given up half cut: as many as can be half cut (see `backlog`)."""


class Sender:
    """State of everything this end sends to one peer."""

    __slots__ = (
        "_active", "_address", "_asked", "_asks", "_backlog", "_ceiling", "_config", "_context", "_datagram_bytes",
        "_evidence", "_look_at", "_lost", "_pacer", "_progress", "_round_trip", "_sent", "_series_packets",
        "_silent_at", "_spray", "_table", "_trace", "_window_packets", "ack_way", "control", "inflight_bytes",
        "max_message_bytes", "outbox", "packets", "paths", "retransmitted", "segment_bytes",
    )  # fmt: skip

    def __init__(
        self,
        config: ProtocolConfig,
        *,
        address: Address,
        context: int,
        datagram_bytes: int,
        credit_bytes: int,
        credit_messages: int,
        max_message_bytes: int,
        window_packets: int,
        ceiling: Ceiling,
        rng: Random,
        trace: PeerTrace | None = None,
    ) -> None:
        self._table = PathTable(config, trace=trace)
        self.paths = self._table.all
        self.control = CONTROLLERS[config.controller](config, packet_bytes=datagram_bytes)
        self.segment_bytes = datagram_bytes - HEADER_BYTES
        # A message starts only when all of it is granted, so one beyond the whole window could never start.
        self.max_message_bytes = min(max_message_bytes, credit_bytes)
        self.packets = self.retransmitted = 0
        self.inflight_bytes = 0  # sent on paths that answer, and neither acknowledged nor lost
        self.ack_way = NO_WAY  # of the last ack that arrived
        self._trace = trace
        self._config = config
        # An ack must have bits for the whole window: what it has none for would be taken for lost.
        bitmap_bytes = bitmap_room_bytes(datagram_bytes, reports=max_reports(datagram_bytes))
        self._window_packets = min(config.window_packets, window_packets, 8 * bitmap_bytes)
        self._address = address
        self._context = context
        self._datagram_bytes = datagram_bytes
        self._series_packets = min(MAX_DATAGRAM_BYTES // datagram_bytes, MAX_SERIES_PACKETS)  # go as one message
        self._spray = Spray(rng=rng)
        self._pacer = Pacer(depth_s=config.pacing_depth_s)
        self._ceiling = ceiling
        self._sent = SentPackets()
        self._lost: list[tuple[SendRun, int, int, Path | None]] = []  # first PSN, count, path it was lost on, if any
        credit = Credit(credit_bytes, granted_messages=credit_messages, retries=config.rnr_retry)
        self.outbox = Outbox(
            self._sent, credit=credit, send_first=lambda run: self._lost.insert(0, (run, run.first, 1, None))
        )
        self._backlog = self.outbox.backlog
        self._active = self._table.active
        self._evidence = Evidence(jitter_s=config.min_delay_target_s)
        self._asks: list[Path] = []  # paths to ask what became of what they carry
        self._asked = 0  # signs of life asked for, each over another path
        self._silent_at = math.inf  # when no path answered any more; infinite while one does
        self._look_at = math.inf  # not later than when the oldest burst of some path will be lost
        self._round_trip = RoundTrip(initial_s=config.initial_rtt_s)
        self._progress = Progress()

    @property
    def idle(self) -> bool:
        """Whether every request is done."""
        return not self.outbox.requests

    @property
    def rtt_s(self) -> float:
        """Smoothed round trip, over the active paths that are in use."""
        return self._round_trip.smoothed_s

    def swallowed_since(self) -> float:
        """Since when no path carries packets of full size, while smaller ones may pass; infinite while one does."""
        return self._silent_at if self._table.doubted else math.inf

    @property
    def blocked(self) -> bool:
        """Whether only the receiver's credit is missing: its grant may have been lost."""
        return not self.inflight_bytes and self._backlog.starving

    def take_round_trip(self, round_trip_s: float, *, now: float) -> None:
        """Take the handshake's: nothing of ours was queued yet."""
        self._table.expect(round_trip_s)
        self._round_trip.smoothed_s = round_trip_s
        self._round_trip.take(round_trip_s, now=now)

    # -- acknowledgements ---------------------------------------------------------------------------------------

    def handle_ack(self, ack: Ack, *, now: float, received_at: float) -> list[int]:
        """Take an ack; return the requests that are done by it. Raises PacketError if it cannot be true."""
        heard = [self._table.find_untrusted(report) for report in ack.reports]
        acked_packets, acked_bytes, done = self._sent.acknowledge(ack.cumulative, bitmap=ack.bitmap)
        self.ack_way = (ack.path, ack.towards)
        self.outbox.credit.grant(ack.credit_bytes, messages=ack.credit_messages)
        for (path, sequence), report in zip(heard, ack.reports, strict=True):
            if sequence > path.reported_sequence:  # else repeated for robustness, or overtaken by a later ack
                self._take_report(path, report, sequence=sequence, now=now, received_at=received_at)
            if path.transmissions:
                self._settle(path, now=now)
        if not self.inflight_bytes and len(self._active) == len(self.paths):
            self._look_at = math.inf  # nothing is under way, on any path
        if acked_bytes:
            if now >= self._round_trip.refresh_at:
                self._round_trip.refresh([path.rtt for path in self._active], now=now)
                self._evidence.calm(now=now, rtt_s=self.rtt_s)
            rtt_s, late_s = self.rtt_s, now - received_at
            min_rtt_s = self._round_trip.min_s
            self._ceiling.on_ack(now=now, acked_bytes=acked_bytes, rtt_s=rtt_s, min_rtt_s=min_rtt_s)
            # On a long path a window beyond the ceiling would take a round trip for each halving, until it holds again.
            limited = self._progress.clocked(now, rtt_s=rtt_s) and not self._ceiling.path_full
            self.control.on_ack(now=now, acked_bytes=acked_bytes, rtt_s=rtt_s, late_s=late_s, limited=limited)
        if self._trace is not None:
            self._trace.ack_taken(
                ack,
                acked_packets=acked_packets,
                acked_bytes=acked_bytes,
                window_bytes=self.control.window_bytes,
                inflight_bytes=self.inflight_bytes,
                rtt_s=self.rtt_s,
                now=now,
            )
        if ack.flags & NOT_READY:
            self.control.undo()  # it was not the network that lost them
        if ack.flags & NOT_READY and not acked_bytes:
            self._hold(now=now)
        elif acked_bytes and self.outbox.credit.hold_until:
            self.outbox.credit.forgive()
        return self.outbox.acknowledged(done)

    @property
    def retry_s(self) -> float:
        """How long to wait before a receiver that is not ready is tried again."""
        least_s = max(4 * self.rtt_s, self._config.rnr_timer_s)
        return min(least_s * (1 << min(self.outbox.credit.refusals, 16)), self._config.probe_after_s)

    def _hold(self, *, now: float) -> None:
        """The receiver dropped what it had promised memory for."""
        if self.outbox.credit.refuse(now=now, wait_s=self.retry_s) and not self.outbox.end_dropped():
            self._pacer.hold(until=self.outbox.credit.hold_until)

    def _take_report(self, path: Path, report: PathReport, *, sequence: int, now: float, received_at: float) -> None:
        if report.duplicates != path.counters.duplicates & 0xFFFF:
            path.counters.duplicates += (again := report.duplicates - path.counters.duplicates & 0xFFFF)
            if self._evidence.duplicates(again, now=now, rtt_s=self.rtt_s):
                self.control.undo()
        heard, marked = sequence - path.reported_sequence, 0.0
        if report.marked != path.counters.marked & 0xFFFF:
            path.counters.marked += (new := report.marked - path.counters.marked & 0xFFFF)
            marked = min(new / heard, 1.0)
        self._spray.earn(path, packets=heard)
        probe = path.report(sequence)
        rtt_us = (int(received_at * 1e6) - report.sent_us & 0xFFFFFFFF) - report.held_us
        if not 0 <= rtt_us < 60_000_000:
            return  # a clock that jumped; there will be another sample
        path.rtt.update(rtt_us / 1e6, now=now)
        self._round_trip.take(path.rtt.latest_s, now=now)
        sent_at = received_at - (rtt_us + report.held_us) / 1e6
        path.heard_sent_at = sent_at
        self._evidence.hear(sent_at, held_s=report.held_us / 1e6)
        if self._silent_at < math.inf:
            if sent_at < self._silent_at:  # the answer was late, not missing
                self.control.undo()
            self._silent_at = math.inf
        if path.state is not PathState.ACTIVE:
            self._table.answer(path, now=now)
            self.inflight_bytes = self._table.inflight_bytes
        if self._trace is not None:
            self._trace.path_sampled(path, held_us=report.held_us, now=now)
        if probe:  # shorter than data, and so faster: it says nothing of the queues
            return
        base_s = self._round_trip.base_s(path.rtt, now=now)
        self.control.on_sample(
            now=now,
            queue_s=path.rtt.latest_s - base_s,
            endpoint_s=report.held_us / 1e6,
            min_rtt_s=base_s,
            variation_s=path.rtt.variation_s,
            marked=marked,
        )

    def acknowledged(self, first: int, *, count: int) -> bool:
        """Whether any of these PSNs was acknowledged."""
        return self._sent.missing(first, count=count) != mask(count)

    # -- loss and silence ---------------------------------------------------------------------------------------

    def _settle(self, path: Path, *, now: float) -> None:
        """Decide the fate of bursts in flight on a path."""
        before = path.inflight_bytes
        patience_s, full_bytes = self._config.min_rto_s, self._datagram_bytes
        settled = settle(
            path, sent=self._sent, evidence=self._evidence, now=now, min_rto_s=patience_s, datagram_bytes=full_bytes
        )
        if path.state is PathState.ACTIVE:
            self.inflight_bytes -= before - path.inflight_bytes
        if settled is None:
            return
        if settled.lost:
            lost, left = settled.lost_bytes, self.inflight_bytes
            self.control.on_loss(now=now, lost_bytes=lost, inflight_bytes=left, silent=settled.timed_out)
            self._lose(path, settled.lost, now=now)
        if (settled.timed_out or path.doubted) and path.state is PathState.ACTIVE:
            self._silence(path, now=now)
        if settled.ask:
            self._asks.append(path)
        if settled.look_again_at is not None and settled.look_again_at < self._look_at:
            self._look_at = settled.look_again_at

    def _lose(self, path: Path, lost: list[tuple[Transmission, int]], *, now: float) -> None:
        for transmission, missing in lost:
            for first, count in ranges(missing):
                self._lost.append((transmission.run, transmission.first + first, count, path))
        if self._trace is not None:
            self._trace.packets_lost(path, lost=lost, now=now)
            self._trace.window(self.control.window_bytes, why="loss", now=now)

    def _silence(self, path: Path, *, now: float) -> None:
        self._table.silence(path, now=now)
        self.inflight_bytes = self._table.inflight_bytes
        if not self._active:
            self.control.on_silence(now=now)
            self._silent_at = now
        if self._trace is not None:
            self._trace.window(self.control.window_bytes, why="silence", now=now)

    def handle_timeout(self, *, now: float) -> None:
        """Look after what has waited long enough."""
        self.outbox.end_overdue(now=now)
        if now >= self._look_at:
            self._look_at = math.inf
            for path in self.paths:
                if path.transmissions:
                    self._settle(path, now=now)

    def poll_timeout(self, *, now: float) -> float | None:
        """When `handle_timeout` or `poll_burst` wants to be called again, if nothing arrives."""
        at = now if self._asks else self._look_at
        if (deadline_at := self.outbox.requests.deadline_at) is not None and deadline_at < at:
            at = deadline_at
        at = min(at, self._table.probe_at())
        if self._may_send() and self._has_work():
            at = min(at, self._pacer.release_at())
        return None if at == math.inf else max(at, now)

    def poll_probe(self, *, now: float) -> tuple[Path, int] | None:
        """Return a path that is to be probed now, and the probe's path sequence."""
        if self._asks:
            return (path := self._asks.pop(0)), path.take_probe_sequence()
        if not self._table.probed:  # as nearly always
            return None
        return self._table.probe(now=now, packets_per_s=self.control.bytes_per_s(self.rtt_s) / self._datagram_bytes)

    def has_used(self, path: int) -> bool:
        """Whether anything was sent over our path of this number."""
        return path < len(self.paths) and self.paths[path].next_sequence > 0

    def probe_any(self, *, others: bool = False) -> tuple[Path, int]:
        """Return a path to ask the peer for a sign of life over: the one that answered last; `others`: all in turn."""
        path = self._spray.heard
        if others or path is None or path.state is not PathState.ACTIVE:
            self._asked += 1
            self._table.unfold()
            paths = self._active or self._table.probed
            path = paths[self._asked % len(paths)]
        return path, path.take_probe_sequence()

    # -- transmission -------------------------------------------------------------------------------------------

    def poll_burst(self, *, now: float) -> Burst | None:
        """Return the next burst that window, pace and credit allow."""
        if not self._may_send() or now < self._pacer.release_at():
            if not self._ceiling.reached(self.inflight_bytes):  # else the window need not grow
                self._progress.held(now)
            return None
        window_packets = int(self.control.window_bytes) // self._datagram_bytes
        limit = min(window_packets - self.inflight_bytes // self._datagram_bytes, MAX_BURST_PACKETS)
        if not self._progress.free(now, rtt_s=self.rtt_s):
            limit = min(limit, window_packets // BURSTS_PER_WINDOW)
        limit = max(limit - limit % self._series_packets if limit > self._series_packets else limit, 1)
        return self._retransmit(limit, now=now) if self._lost else self._send_new(limit, now=now)

    def _may_send(self) -> bool:
        within = self.inflight_bytes < self.control.window_bytes and not self._ceiling.reached(self.inflight_bytes)
        return bool(self._active) and within

    def _has_work(self) -> bool:
        return bool(self._lost) or (self._room_packets() > 0 and self._backlog.head() is not None)

    def _room_packets(self) -> int:
        window_packets = min(self._window_packets, self._ceiling.span_packets)
        return window_packets - VOID_PSNS - (self._sent.next_psn - self._sent.base)

    def _retransmit(self, limit: int, *, now: float) -> Burst | None:
        while self._lost:
            run, first, count, lost_on = self._lost.pop(0)
            missing = self._sent.missing(first, count=count)
            if run.message.batch is not None:  # given up, each message says by itself where it ends
                limit = 1 if run.message.void else most_packets(limit, run.packet_bytes, self._datagram_bytes)
            for skip, length in ranges(missing):  # only the first is sent now
                sent = min(length, limit)
                rest = skip + sent
                if missing >> rest:
                    self._lost.insert(0, (run, first + rest, count - rest, lost_on))
                self._table.unfold_all()
                path = self._spray.retry_path(self._active, now=now, avoid=lost_on)
                if lost_on is not None:
                    path.counters.retransmitted += sent
                    self.retransmitted += sent
                return self._transmit(run, first + skip, count=sent, path=path, now=now)
        return self._send_new(limit, now=now)

    def _send_new(self, limit: int, *, now: float) -> Burst | None:
        outbound, room = self._backlog.head(), self._room_packets()
        if outbound is None or room <= 0:
            self._progress.pause()
            return None
        self._progress.go_on(now)
        if self.inflight_bytes:
            self._table.unfold_all()
        batch = outbound.batch
        if batch is None:
            offset, left_bytes = outbound.next_offset, outbound.carried_bytes - outbound.next_offset
            count = min(limit, max(-(-left_bytes // self.segment_bytes), 1))
            packet_bytes = HEADER_BYTES + min(self.segment_bytes, left_bytes)
        else:
            offset, packet_bytes = batch.cut, HEADER_BYTES + outbound.length
            count = min(batch.count - batch.cut, self.outbox.credit.covered(outbound.length))
            count = min(count, most_packets(limit, packet_bytes, self._datagram_bytes))
        count, clocked = min(count, room), self._progress.clocked(now, rtt_s=self.rtt_s)
        path, count = self._spray.next_burst(self._active, packets=count, now=now, clocked=clocked)
        run = self._sent.add(outbound, offset=offset, count=count, packet_bytes=packet_bytes)
        if batch is None:
            self._backlog.cut(outbound, size_bytes=count * self.segment_bytes)
        else:
            self._backlog.cut_batch(outbound, batch, count=count)
        return self._transmit(run, run.first, count=count, path=path, now=now)

    def _transmit(self, run: SendRun, first: int, *, count: int, path: Path, now: float) -> Burst:
        sequence, size_bytes = path.take_sequence(count), count * run.packet_bytes
        path.transmissions.append(Transmission(run, first, count, sequence, now))
        path.inflight_bytes += size_bytes
        self.inflight_bytes += size_bytes
        path.counters.packets += count
        path.counters.bytes += size_bytes
        self.packets += count
        if self._look_at > now + path.rtt.smoothed_s:  # else it is early enough, as nearly always
            self._look_at = min(self._look_at, now + usual_s(path, jitter_s=self._evidence.jitter_s))
        self._pacer.charge(size_bytes, now=now, rate_bytes_per_s=self.control.bytes_per_s(self.rtt_s))
        message = run.message
        number, offset, place, payload_bytes, segment_bytes, places = run.content(
            first, count=count, segment_bytes=self.segment_bytes
        )
        burst = Burst(  # in the order of the fields: names would cost as much again
            self._address,
            path.index,
            sequence,
            self._context,
            first,
            count,
            int(now * 1e6) & 0xFFFFFFFF,
            number,
            message.length,
            message.immediate,
            message.remote_offset + offset,
            message.key,
            place,
            payload_bytes,
            segment_bytes,
            message.flags,
            places,
        )
        if message.void:
            burst.flags, burst.immediate, burst.offset = message.flags | VOID, message.why, run.end_psn(first)
            burst.payload_bytes = burst.segment_bytes = 0
        return burst
