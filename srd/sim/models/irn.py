"""IRN: RDMA for lossy Ethernet (Mittal et al., "Revisiting Network Support for RDMA", SIGCOMM 2018, section 3).

Loss recovery (3.1). The receiver keeps packets that are out of order and replies to each with a NACK: the cumulative
acknowledgement, and the PSN that came. The first one, or a timeout, begins the recovery, which ends when the cumulative
acknowledgement passes what had been sent by then. In it, the sender repeats the first missing packet, then those below
the highest that came, each once; then it sends new ones. Timeouts: RTO_LOW with RTO_LOW_PACKETS in flight at most, else
RTO_HIGH.

Flow control (3.2, BDP-FC). At most a bandwidth-delay product of packets lies between the next and the cumulative
acknowledgement. There is no slow start, and no reaction to loss.
"""

from __future__ import annotations

from typing import Final

from srd.sim.models.flow import NEVER_NS, FlowReply, FlowSender, ReplyKind

RTO_LOW_PACKETS: Final = 3
RTO_LOW_NS: Final = 100_000
RTO_HIGH_NS: Final = 320_000
"""The paper's (4.1): what a packet takes through full buffers of its longest path of 40 Gbit/s."""


class IrnSender(FlowSender):
    """The requester."""

    def __init__(
        self, packets: int, *, window_packets: int, rto_low_ns: int = RTO_LOW_NS, rto_high_ns: int = RTO_HIGH_NS
    ) -> None:
        """`window_packets`: the bandwidth-delay product of the path."""
        super().__init__(packets)
        self._rto_low_ns, self._rto_high_ns = rto_low_ns, rto_high_ns
        self.window_packets = window_packets
        self._next = 0
        self._arrived: set[int] = set()  # beyond the cumulative acknowledgement
        self._highest_arrived = -1
        self._recovery_until = -1  # recovery ends when all below are acknowledged; -1: there is none
        self._repeated = 0  # this recovery has looked at all packets below
        self._first_due = False  # the first missing packet is to be repeated

    def ready_at(self, now_ns: int) -> int:
        """Return now if there is something to repeat, or room in the window."""
        if self._missing() >= 0 or (self._next < self.packets and self._next - self.acknowledged < self.window_packets):
            return now_ns
        return NEVER_NS

    def _missing(self) -> int:
        """The next packet that this recovery repeats; -1: there is none."""
        if self._recovery_until < 0:
            return -1
        if self._first_due:
            return self.acknowledged
        psn = max(self._repeated, self.acknowledged)
        while psn < self._highest_arrived and psn in self._arrived:
            psn += 1
        self._repeated = psn
        return psn if psn < self._highest_arrived else -1

    def take(self, now_ns: int) -> int:
        """Send what is missing, else a new packet."""
        psn = self._missing()
        if psn >= 0:
            self._repeated, self._first_due = psn + 1, False
            self.resent += 1
        else:
            psn = self._next
            self._next += 1
        self.sent += 1
        if self.timeout_at == NEVER_NS:
            self._set_timeout(now_ns)
        return psn

    def _set_timeout(self, now_ns: int) -> None:
        flying = self._next - self.acknowledged - len(self._arrived)
        self.timeout_at = now_ns + (self._rto_low_ns if flying <= RTO_LOW_PACKETS else self._rto_high_ns)

    def handle(self, reply: FlowReply, now_ns: int) -> None:
        """Take an acknowledgement; a NACK begins the recovery."""
        if reply.kind is ReplyKind.CNP:
            return
        if reply.psn >= reply.cumulative:
            self._arrived.add(reply.psn)
            self._highest_arrived = max(self._highest_arrived, reply.psn)
        if reply.cumulative > self.acknowledged:
            self._arrived.difference_update(range(self.acknowledged, reply.cumulative))
            self.acknowledged = reply.cumulative
            if self.acknowledged > self._recovery_until:
                self._recovery_until = -1
        if reply.kind is ReplyKind.NAK and self._recovery_until < 0 and reply.cumulative >= self.acknowledged:
            self._recover()
        if self.is_done or self._next == self.acknowledged:
            self.timeout_at = NEVER_NS
        else:
            self._set_timeout(now_ns)

    def _recover(self) -> None:
        self._recovery_until, self._repeated, self._first_due = self._next - 1, self.acknowledged, True

    def handle_timeout(self, now_ns: int) -> None:
        """Begin a recovery, or begin it again."""
        self._recover()
        self._set_timeout(now_ns)
