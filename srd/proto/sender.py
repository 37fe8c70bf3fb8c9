"""The sending half of a peer: work requests in, bursts out, acknowledgements back in.

1. Messages are cut in the order they were posted, and may finish in any. A message starts only when all of it fits into
   the credit granted by the receiver, so that half-started messages cannot starve each other.
2. What was lost goes before what is new, and on another path.
3. How much may be in flight is the congestion controller's word; when, the pacer's; where, `spray`'s.
4. While no path is active nothing is sent but probes; the first that is answered brings its path back.
"""

from __future__ import annotations

import math
from collections import deque
from random import Random

from srd.proto.config import ProtocolConfig
from srd.proto.congestion import CONTROLLERS
from srd.proto.control import Ack, PathReport
from srd.proto.errors import PacketError
from srd.proto.loss import settle
from srd.proto.pacing import Pacer
from srd.proto.path import Path, PathState
from srd.proto.sent import Outbound, SendRun, SentPackets, Transmission
from srd.proto.seqset import ranges
from srd.proto.spray import Spray
from srd.proto.wire import HEADER_BYTES, MAX_BURST_PACKETS, MAX_DATAGRAM_BYTES, Address, Burst, expand

BURSTS_PER_WINDOW = 16
"""A burst is at most this share of the window, so that a window is spread over paths and not sent to one queue."""


class Sender:
    """State of everything this end sends to one peer."""

    def __init__(
        self,
        config: ProtocolConfig,
        *,
        address: Address,
        context: int,
        datagram_bytes: int,
        credit_bytes: int,
        max_message_bytes: int,
        rng: Random,
    ) -> None:
        self.paths = [Path(index, initial_rtt_s=config.initial_rtt_s) for index in range(config.paths)]
        self.control = CONTROLLERS[config.controller](config, packet_bytes=datagram_bytes)
        self.segment_bytes = datagram_bytes - HEADER_BYTES
        # A message starts only when all of it is granted, so one beyond the whole window could never start.
        self.max_message_bytes = min(max_message_bytes, credit_bytes)
        self.packets = 0
        self.retransmitted = 0
        self.inflight_bytes = 0  # sent, and neither acknowledged nor lost
        self.rtt_s = config.initial_rtt_s  # smoothed, over the active paths
        self._config = config
        self._address = address
        self._context = context
        self._datagram_bytes = datagram_bytes
        self._portable_packets = min(MAX_BURST_PACKETS, MAX_DATAGRAM_BYTES // datagram_bytes)
        self._credit_bytes = credit_bytes
        self._started_bytes = 0
        self._spray = Spray(rng=rng)
        self._pacer = Pacer()
        self._sent = SentPackets()
        self._queue: deque[Outbound] = deque()  # not yet cut whole
        self._open: dict[int, Outbound] = {}  # by request: not yet done
        self._lost: deque[tuple[SendRun, int, int, Path]] = deque()  # (run, first PSN, count, path it was lost on)
        self._active = list(self.paths)
        self._next_message = 0
        self._look_at = math.inf  # not later than when the oldest burst of some path will be lost
        self._min_rtt_s = config.initial_rtt_s
        self._refresh_at = 0.0

    @property
    def idle(self) -> bool:
        """Whether every request is done."""
        return not self._open

    @property
    def requests(self) -> list[int]:
        """The requests that are not done."""
        return list(self._open)

    @property
    def blocked(self) -> bool:
        """Whether only the receiver's credit is missing: its grant may have been lost."""
        return bool(self._queue) and not self.inflight_bytes and not self._startable(self._queue[0])

    def post(self, request: int, *, payload_offset: int, length: int, immediate: int) -> None:
        """Queue a message."""
        outbound = Outbound(request, self._next_message & 0xFFFFFFFF, payload_offset, length, immediate)
        self._next_message += 1
        self._queue.append(outbound)
        self._open[request] = outbound

    # -- acknowledgements ---------------------------------------------------------------------------------------

    def handle_ack(self, ack: Ack, *, now: float, received_at: float) -> list[int]:
        """Take an ack; return the requests that are done by it. Raises PacketError if it cannot be true."""
        heard = [self._find_untrusted(report) for report in ack.reports]
        _, acked_bytes, done = self._sent.acknowledge(ack.cumulative, bitmap=ack.bitmap)
        self._credit_bytes = max(self._credit_bytes, ack.credit_bytes)
        for (path, sequence), report in zip(heard, ack.reports, strict=True):
            if sequence > path.reported_sequence:  # else repeated for robustness, or overtaken by a later ack
                self._take_report(path, report, sequence=sequence, now=now, received_at=received_at)
            if path.transmissions:
                self._settle(path, now=now)
        if acked_bytes:
            self._refresh_rtt(now=now)
            self.control.on_ack(
                now=now,
                acked_bytes=acked_bytes,
                rtt_s=self.rtt_s,
                min_rtt_s=self._min_rtt_s,
                late_s=now - received_at,
            )
        for outbound in done:
            del self._open[outbound.request]
        return [outbound.request for outbound in done]

    def _refresh_rtt(self, *, now: float) -> None:
        """Average the active paths' round trips, once a round trip: there may be 64 of them."""
        if now < self._refresh_at:
            return
        sampled = [path.rtt for path in self._active if path.rtt.sampled]
        if sampled:
            self.rtt_s = sum(rtt.smoothed_s for rtt in sampled) / len(sampled)
            self._min_rtt_s = min(rtt.min_s for rtt in sampled)
        self._refresh_at = now + self.rtt_s

    def _find_untrusted(self, report: PathReport) -> tuple[Path, int]:
        """Return the path of a report, and the path sequence in full."""
        if report.path >= len(self.paths):
            raise PacketError(f"a report of path {report.path}, of {len(self.paths)}")
        path = self.paths[report.path]
        sequence = expand(report.path_sequence, near=path.next_sequence)
        if sequence >= path.next_sequence:
            raise PacketError(f"a report of path {report.path}, sequence {report.path_sequence}, which was not sent")
        return path, sequence

    def _take_report(self, path: Path, report: PathReport, *, sequence: int, now: float, received_at: float) -> None:
        path.counters.duplicates = report.duplicates
        self._spray.earn(path, packets=sequence - path.reported_sequence)
        path.reported_sequence = sequence
        rtt_us = (int(received_at * 1e6) - report.sent_us & 0xFFFFFFFF) - report.held_us
        if not 0 <= rtt_us < 60_000_000:
            return  # a clock that jumped; there will be another sample
        path.rtt.update(rtt_us / 1e6, now=now)
        if path.state is not PathState.ACTIVE:
            self._active.append(path)
        path.answer()
        queue_s = path.rtt.latest_s - path.rtt.min_s
        self.control.on_sample(
            queue_s=queue_s,
            endpoint_s=report.held_us / 1e6,
            min_rtt_s=path.rtt.min_s,
            variation_s=path.rtt.variation_s,
        )

    # -- loss and silence ---------------------------------------------------------------------------------------

    def _settle(self, path: Path, *, now: float) -> None:
        """Decide the fate of bursts in flight on a path."""
        before = path.inflight_bytes
        settled = settle(path, sent=self._sent, now=now, min_rto_s=self._config.min_rto_s)
        self.inflight_bytes -= before - path.inflight_bytes
        if settled.lost and not settled.timed_out:  # what only fell silent may be late, and says nothing of queues
            self.control.on_loss(now=now)
        for transmission, missing in settled.lost:
            for first, count in ranges(missing):
                self._lost.append((transmission.run, transmission.first + first, count, path))
        if settled.timed_out and path.state is PathState.ACTIVE:
            self._silence(path, now=now)
        if settled.look_again_at is not None and settled.look_again_at < self._look_at:
            self._look_at = settled.look_again_at

    def _silence(self, path: Path, *, now: float) -> None:
        if path.state is PathState.ACTIVE:
            self._active.remove(path)
            if not self._active:
                self.control.on_silence(now=now)
        path.silence(now=now, timeout_s=path.rtt.timeout_s(floor_s=self._config.min_rto_s))

    def handle_timeout(self, *, now: float) -> None:
        """Look after what has waited long enough."""
        if now >= self._look_at:
            self._look_at = math.inf
            for path in self.paths:
                if path.transmissions:
                    self._settle(path, now=now)

    def poll_timeout(self, *, now: float) -> float | None:
        """When `handle_timeout` or `poll_burst` wants to be called again, if nothing arrives."""
        at = self._look_at
        if len(self._active) < len(self.paths):
            at = min(at, *(path.probe_at for path in self.paths if path.probe_at is not None))
        if self._may_send() and self._has_work():
            at = min(at, self._pacer.release_at())
        return None if at == math.inf else max(at, now)

    def poll_probe(self, *, now: float) -> tuple[Path, int] | None:
        """Return a path that is to be probed now, and the probe's path sequence."""
        if len(self._active) < len(self.paths):
            for path in self.paths:
                if path.probe_at is not None and now >= path.probe_at:
                    return path, path.take_probe(now=now)
        return None

    def probe_any(self, *, now: float) -> tuple[Path, int]:
        """Return any path, rather an active one, to ask the peer for a sign of life."""
        path = self._spray.next_path(self._active or self.paths, now=now)
        return path, path.take_sequence(1)

    # -- transmission -------------------------------------------------------------------------------------------

    def poll_burst(self, *, now: float) -> Burst | None:
        """Return the next burst that window, pace and credit allow."""
        if not self._may_send() or now < self._pacer.release_at():
            return None
        window_packets = int(self.control.window_bytes) // self._datagram_bytes
        room_packets = window_packets - self.inflight_bytes // self._datagram_bytes
        limit = max(min(room_packets, window_packets // BURSTS_PER_WINDOW, self._portable_packets), 1)
        return self._retransmit(limit, now=now) if self._lost else self._send_new(limit, now=now)

    def _may_send(self) -> bool:
        if not self._active:
            return False
        return not self.inflight_bytes or self.inflight_bytes + self._datagram_bytes <= self.control.window_bytes

    def _has_work(self) -> bool:
        return bool(self._lost) or bool(self._queue and self._startable(self._queue[0]))

    def _startable(self, outbound: Outbound) -> bool:
        if self._sent.next_psn - self._sent.base >= self._config.window_packets:
            return False
        return outbound.next_offset > 0 or self._started_bytes + outbound.length <= self._credit_bytes

    def _retransmit(self, limit: int, *, now: float) -> Burst | None:
        while self._lost:
            run, first, count, lost_on = self._lost.popleft()
            missing = self._sent.missing(first, count=count)
            for skip, length in ranges(missing):  # only the first is sent now
                sent = min(length, limit)
                rest = skip + sent
                if missing >> rest:
                    self._lost.appendleft((run, first + rest, count - rest, lost_on))
                path = self._spray.next_path(self._active, now=now, avoid=lost_on)
                path.counters.retransmitted += sent
                self.retransmitted += sent
                return self._transmit(run, first + skip, count=sent, path=path, now=now)
        return self._send_new(limit, now=now)

    def _send_new(self, limit: int, *, now: float) -> Burst | None:
        if not self._queue or not self._startable(self._queue[0]):
            return None
        outbound = self._queue[0]
        left_bytes = outbound.length - outbound.next_offset
        room = self._config.window_packets - (self._sent.next_psn - self._sent.base)
        count = min(limit, room, max(-(-left_bytes // self.segment_bytes), 1))
        path, count = self._spray.next_burst(self._active, packets=count, now=now)
        packet_bytes = HEADER_BYTES + min(self.segment_bytes, left_bytes)
        run = self._sent.add(outbound, offset=outbound.next_offset, count=count, packet_bytes=packet_bytes)
        if outbound.next_offset == 0:
            self._started_bytes += outbound.length
        outbound.next_offset = min(outbound.next_offset + count * self.segment_bytes, outbound.length)
        if outbound.next_offset == outbound.length:
            outbound.cut = True
            self._queue.popleft()
        return self._transmit(run, run.first, count=count, path=path, now=now)

    def _transmit(self, run: SendRun, first: int, *, count: int, path: Path, now: float) -> Burst:
        sequence, size_bytes = path.take_sequence(count), count * run.packet_bytes
        path.transmissions.append(Transmission(run, first, count, sequence, now))
        path.inflight_bytes += size_bytes
        self.inflight_bytes += size_bytes
        path.counters.packets += count
        path.counters.bytes += size_bytes
        self.packets += count
        if self._look_at > now + self._config.min_rto_s:  # no timeout is shorter; nearly always one is set already
            self._look_at = min(self._look_at, now + path.rtt.timeout_s(floor_s=self._config.min_rto_s))
        rate = self.control.pacing_gain * self.control.window_bytes / self.rtt_s
        self._pacer.charge(size_bytes, now=now, rate_bytes_per_s=rate)
        message = run.message
        offset = run.offset + (first - run.first) * self.segment_bytes
        return Burst(
            address=self._address,
            path=path.index,
            path_sequence=sequence,
            context=self._context,
            psn=first,
            count=count,
            sent_us=int(now * 1e6) & 0xFFFFFFFF,
            message=message.message,
            length=message.length,
            immediate=message.immediate,
            offset=offset,
            key=0,
            payload_offset=message.payload_offset + offset,
            payload_bytes=min(count * self.segment_bytes, message.length - offset),
            segment_bytes=self.segment_bytes,
        )
