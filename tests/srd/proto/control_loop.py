"""A congestion controller, fed by hand."""

from __future__ import annotations

import math

from srd.proto.config import ProtocolConfig
from srd.proto.congestion.base import Controller
from srd.proto.congestion.delay import MajorityDelay

PACKET_BYTES = 9000
RTT_S = 0.002
TARGET_S = 0.001


def controller() -> Controller:
    return MajorityDelay(ProtocolConfig(), packet_bytes=PACKET_BYTES)


class Loop:
    """A controller fed as a sender feeds it: a window of samples and acks each round trip."""

    def __init__(self) -> None:
        self.control = controller()
        self.now = 10.0

    def rounds(self, count: int, *queues_s: float, endpoint_s: float = 0.0, marked: tuple[float, ...] = (0.0,)) -> None:
        """Let `count` round trips pass, in which paths report these queueing delays, and these marks, in turn."""
        for _ in range(count):
            packets = max(int(self.control.window_bytes / PACKET_BYTES), 1)
            for index in range(packets):
                self.now += RTT_S / packets
                queue_s = queues_s[index % len(queues_s)]
                self.control.on_sample(
                    now=self.now,
                    queue_s=queue_s,
                    endpoint_s=endpoint_s,
                    min_rtt_s=RTT_S,
                    variation_s=0.0,
                    ecn_fraction=marked[index % len(marked)],
                )
                self.control.on_ack(
                    now=self.now, acked_bytes=PACKET_BYTES, rtt_s=RTT_S, ack_wait_s=0.0, cwnd_limited=True
                )

    def lose(self, packets: float, *, left: float = math.inf, silent: bool = False) -> None:
        """Of a window that is full, unless it is given how many packets are left in flight."""
        lost_bytes = round(packets * PACKET_BYTES)
        inflight_bytes = max(round(min(left * PACKET_BYTES, self.control.window_bytes - lost_bytes)), 0)
        self.control.on_loss(now=self.now, lost_bytes=lost_bytes, inflight_bytes=inflight_bytes, by_timeout=silent)

    @property
    def packets(self) -> float:
        return self.control.window_bytes / PACKET_BYTES

    @packets.setter
    def packets(self, packets: float) -> None:
        self.control.window_bytes = packets * PACKET_BYTES
