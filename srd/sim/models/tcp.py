"""TCP's sender; the receiver is `flow.FlowReceiver`, which acknowledges each packet.

Each transmission has a number, and each is acknowledged by itself. A packet is lost when one that was sent three
transmissions later was acknowledged (as with SACK, RFC 6675, and with QUIC's packet threshold, RFC 9002, which finds
lost retransmissions, too). If nothing comes, the last packet is sent again (tail loss probe, RFC 8985, with Linux' 2 ms
beyond two round trips); the retransmission timeout is RFC 6298's with Linux' minimum of 0.2 s.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final, NamedTuple

from srd.sim.models.controllers import Acked, TcpController
from srd.sim.models.flow import NEVER_NS, NS_PER_S, FlowReply, FlowSender

REORDERING_PACKETS: Final = 3
MIN_RTO_S: Final = 0.2
PROBE_SLACK_S: Final = 0.002
ENDLESS: Final = 2**62
"""Packets of a flow that does not end."""


class _Sent(NamedTuple):
    """State at a transmission of a packet."""

    psn: int
    at: float
    delivered: int
    delivered_at: float


class TcpFlowSender(FlowSender):
    """`delivered` counts transmissions that were acknowledged, `lost` those taken for lost."""

    def __init__(self, packets: int, *, controller: TcpController, min_rto_s: float = MIN_RTO_S) -> None:
        super().__init__(packets)
        self.controller = controller
        self._min_rto_s = min_rto_s
        self.delivered = self.lost = 0
        self._next = 0
        self._again: deque[int] = deque()
        self._inflight: dict[int, _Sent] = {}  # by number of transmission, in order
        self._highest = -1  # number of transmission that was acknowledged
        self._recovery_until = -1  # losses of transmissions up to this one belong to the last loss event
        self._round_until = 0  # the round ends when a transmission from this one on is acknowledged
        self._delivered_at = 0.0
        self._srtt_s, self._rttvar_s = 0.0, 0.0
        self._backoff = 0
        self._paced_at = 0.0
        self._is_probing = self._probe_due = False

    def ready_at(self, now_ns: int) -> int:
        """Return when window and pacing allow the next packet."""
        if self._probe_due:
            return now_ns
        while self._again and self._again[0] < self.acknowledged:
            self._again.popleft()
        if not self._again and self._next >= self.packets:
            return NEVER_NS
        if len(self._inflight) >= int(self.controller.window):
            return NEVER_NS
        return math.ceil(self._paced_at * NS_PER_S)

    def take(self, now_ns: int) -> int:
        """Send what was lost, else a new packet."""
        now, rate = now_ns / NS_PER_S, self.controller.pacing_rate
        if not self._inflight:
            self._delivered_at = now
        if self._probe_due:
            psn, self._probe_due = self._next - 1, False
            self.resent += 1
        elif self._again:
            psn = self._again.popleft()
            self.resent += 1
        else:
            psn, self._next = self._next, self._next + 1
        self._inflight[self.sent] = _Sent(psn, now, self.delivered, self._delivered_at)
        self.sent += 1
        self._paced_at = max(self._paced_at, now) + (0.0 if rate == math.inf else 1 / rate)
        if self.timeout_at == NEVER_NS:
            self._set_timeout(now)
        return psn

    def handle(self, reply: FlowReply, now_ns: int) -> None:
        """Take the acknowledgement of a transmission."""
        self.acknowledged = max(self.acknowledged, reply.cumulative)
        sent, now = self._inflight.pop(reply.transmission, None), now_ns / NS_PER_S
        if sent is None:
            return  # it was taken for lost
        self.delivered += 1
        rtt_s, elapsed_s = now - sent.at, now - sent.delivered_at
        rate = (self.delivered - sent.delivered) / elapsed_s if elapsed_s > 0 else 0.0
        self._delivered_at, self._backoff, self._is_probing = now, 0, False
        self._highest = max(self._highest, reply.transmission)
        self._update_rtt(rtt_s)
        if is_new_round := reply.transmission >= self._round_until:
            self._round_until = self.sent
        self._detect_losses(now)
        self.controller.on_ack(Acked(now, rtt_s, rate, len(self._inflight), is_new_round, reply.marked))
        self._set_timeout(now)

    def _update_rtt(self, rtt_s: float) -> None:
        if self._srtt_s:
            self._rttvar_s += (abs(self._srtt_s - rtt_s) - self._rttvar_s) / 4
            self._srtt_s += (rtt_s - self._srtt_s) / 8
        else:
            self._srtt_s, self._rttvar_s = rtt_s, rtt_s / 2

    def _detect_losses(self, now: float) -> None:
        lost = []
        for number in self._inflight:
            if number > self._highest - REORDERING_PACKETS:
                break
            lost.append(number)
        for number in lost:
            self._again.append(self._inflight.pop(number).psn)
            self.lost += 1
            if number > self._recovery_until:
                self._recovery_until = self.sent
                self.controller.on_loss(now=now)

    def _set_timeout(self, now: float) -> None:
        if not self._inflight or self.is_done:
            self.timeout_at = NEVER_NS
            return
        after_s = max(self._srtt_s + 4 * self._rttvar_s, self._min_rto_s) if self._srtt_s else 1.0
        after_s *= 1 << min(self._backoff, 6)
        if self._srtt_s and not self._is_probing and self._highest >= self._recovery_until:
            after_s = min(after_s, 2 * self._srtt_s + PROBE_SLACK_S)
        self.timeout_at = math.ceil((now + after_s) * NS_PER_S)

    def handle_timeout(self, now_ns: int) -> None:
        """Probe, or take all in flight for lost."""
        if self._srtt_s and not self._is_probing and self._highest >= self._recovery_until:
            self._is_probing = self._probe_due = True
            self._set_timeout(now_ns / NS_PER_S)
            return
        self.lost += len(self._inflight)
        self._again = deque(sorted({sent.psn for sent in self._inflight.values()} | set(self._again)))
        self._inflight.clear()
        self._recovery_until = self.sent
        self._backoff += 1
        self.timeout_at = NEVER_NS
        self.controller.on_timeout()
