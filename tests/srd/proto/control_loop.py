"""A congestion controller with scripted samples, acks and losses."""

from __future__ import annotations

import math

from srd.proto.config import ProtocolConfig
from srd.proto.congestion.delay import MajorityDelay
from srd.proto.controller import Controller

PACKET_BYTES = 9000
RTT_S = 0.002
TARGET_S = 0.001


def controller() -> Controller:
    return MajorityDelay(ProtocolConfig(), packet_bytes=PACKET_BYTES)


def sample(
    control: Controller,
    now: float,
    *,
    queue_s: float = 0.0,
    endpoint_s: float = 0.0,
    min_rtt_s: float = RTT_S,
    variation_s: float = 0.0,
    ecn_fraction: float = 0.0,
) -> None:
    """Give a controller one path's report."""
    control.on_sample(
        now=now, queue_s=queue_s, endpoint_s=endpoint_s, min_rtt_s=min_rtt_s, target_base_s=min_rtt_s,
        variation_s=variation_s, ecn_fraction=ecn_fraction,
    )  # fmt: skip


def ack(control: Controller, now: float, *, rtt_s: float = RTT_S, cwnd_limited: bool = True) -> None:
    """Give a controller the ack of a packet."""
    control.on_ack(now=now, acked_bytes=PACKET_BYTES, rtt_s=rtt_s, ack_wait_s=0.0, cwnd_limited=cwnd_limited)


class Loop:
    """A controller that gets what a sender reports: a window of samples and acks each round trip."""

    def __init__(self) -> None:
        self.controller = controller()
        self.now = 10.0

    def rounds(self, count: int, *queues_s: float, endpoint_s: float = 0.0, marked: tuple[float, ...] = (0.0,)) -> None:
        """Run `count` round trips, in which paths report these queueing delays and marks in turn."""
        for _ in range(count):
            packets = max(int(self.controller.window_bytes / PACKET_BYTES), 1)
            for index in range(packets):
                self.now += RTT_S / packets
                queue_s = queues_s[index % len(queues_s)]
                sample(
                    self.controller,
                    self.now,
                    queue_s=queue_s,
                    endpoint_s=endpoint_s,
                    ecn_fraction=marked[index % len(marked)],
                )
                ack(self.controller, self.now)

    def grown(self, rounds: int = 3) -> float:
        """Run round trips without a queue; return the packets of the window."""
        self.rounds(rounds, 0.0)
        return self.packets

    def deliver(self, packets: int, *, queue_s: float = 0.0, per_rtt: int = 10, endpoint_s: float = 0.0) -> None:
        """Report packets one by one, so many of them a round trip, whatever the window is."""
        for _ in range(packets):
            self.now += RTT_S / per_rtt
            sample(self.controller, self.now, queue_s=queue_s, endpoint_s=endpoint_s)
            ack(self.controller, self.now)

    def lose(self, packets: float, *, left: float = math.inf, by_timeout: bool = False) -> None:
        """Report a loss; `left`: packets that stay in flight, by default the rest of the window."""
        lost_bytes = round(packets * PACKET_BYTES)
        inflight_bytes = max(round(min(left * PACKET_BYTES, self.controller.window_bytes - lost_bytes)), 0)
        self.controller.on_loss(
            now=self.now, lost_bytes=lost_bytes, inflight_bytes=inflight_bytes, by_timeout=by_timeout
        )

    @property
    def packets(self) -> float:
        return self.controller.window_bytes / PACKET_BYTES

    @packets.setter
    def packets(self, packets: float) -> None:
        self.controller.window_bytes = packets * PACKET_BYTES
