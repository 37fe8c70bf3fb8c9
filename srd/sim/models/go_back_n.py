"""RoCEv2's reliable connection: in order, go-back-N (InfiniBand Architecture Specification, volume 1, section 9.7).

The responder takes packets in order only. One that is ahead is dropped, and answered by one NAK (PSN sequence error)
with the PSN that is missing; no other until that one has come. The requester goes back to it. Packets that came before
are acknowledged again. An acknowledgement covers all up to its PSN; the last packet asks for one, and every
ACK_EVERY-th.

If nothing is acknowledged for the timeout, 4.096 us x 2^TIMEOUT_EXPONENT, the requester goes back to the first packet
that is not; after RETRIES timeouts in a row it gives up, and the queue pair is in error.

There is no window: a flow starts at the rate of its link.
"""

from __future__ import annotations

from typing import Final

from srd.sim.models.flow import NEVER_NS, FlowRate, FlowReceiver, FlowReply, FlowSender, ReplyKind

ACK_EVERY: Final = 8
TIMEOUT_EXPONENT: Final = 14
"""67 ms: what perftest and most applications set; NCCL's is 20 (4.3 s)."""
TIMEOUT_NS: Final = 4096 << TIMEOUT_EXPONENT
RETRIES: Final = 7
"""The most that `retry_cnt` holds."""


class GoBackNSender(FlowSender):
    """The requester."""

    def __init__(self, packets: int, *, rate: FlowRate, packet_bytes: int, timeout_ns: int = TIMEOUT_NS) -> None:
        super().__init__(packets)
        self.rate = rate
        self._timeout_ns = timeout_ns
        self._packet_bytes = packet_bytes
        self._next = self._highest = 0
        self._taken_at = -NEVER_NS
        self._retries = 0

    def ready_at(self, now_ns: int) -> int:
        """Return when the rate allows the next packet; at line rate the port is the clock."""
        if self._next >= self.packets or self.has_failed:
            return NEVER_NS
        changes_at, rate = self.rate.advance(now_ns), self.rate
        if rate.bps >= rate.line_bps:
            return now_ns
        at_ns = self._taken_at + int(self._packet_bytes * 8e9 / rate.bps)
        return at_ns if at_ns <= now_ns else min(at_ns, max(changes_at, now_ns + 1))

    def take(self, now_ns: int) -> int:
        """Send the next packet in order."""
        self.rate.handle_sent(self._packet_bytes, now_ns)
        self._taken_at = now_ns
        psn = self._next
        self._next += 1
        self.sent += 1
        if psn < self._highest:
            self.resent += 1
        self._highest = max(self._highest, self._next)
        if self.timeout_at == NEVER_NS:
            self.timeout_at = now_ns + self._timeout_ns
        return psn

    def handle(self, reply: FlowReply, now_ns: int) -> None:
        """Take an acknowledgement, or go back."""
        if reply.kind is ReplyKind.CNP:
            self.rate.handle_congestion(now_ns)
            return
        if reply.cumulative > self.acknowledged:
            self.acknowledged = reply.cumulative
            self._next = max(self._next, reply.cumulative)
            self._retries = 0
            self.timeout_at = NEVER_NS if self.acknowledged == self._highest else now_ns + self._timeout_ns
        if reply.kind is ReplyKind.NAK and reply.cumulative == self.acknowledged:
            self._next = reply.cumulative

    def handle_timeout(self, now_ns: int) -> None:
        """Go back to the first packet that is not acknowledged, or give up."""
        self._retries += 1
        self._next = self.acknowledged
        self.has_failed = self._retries > RETRIES
        self.timeout_at = NEVER_NS if self.has_failed else now_ns + self._timeout_ns


class GoBackNReceiver(FlowReceiver):
    """The responder."""

    def __init__(self, packets: int) -> None:
        super().__init__(packets)
        self._has_nakked = False

    def handle(self, psn: int, *, transmission: int, marked: bool) -> FlowReply | None:
        """Take the packet if it is the next one."""
        if psn > self.expected:
            if self._has_nakked:
                return None
            self._has_nakked = True
            return FlowReply(ReplyKind.NAK, self.expected, psn, transmission, marked)
        if psn == self.expected:
            self.expected += 1
            self._has_nakked = False
            if self.expected % ACK_EVERY and self.expected < self.packets:
                return None
        return FlowReply(ReplyKind.ACK, self.expected, psn, transmission, marked)
