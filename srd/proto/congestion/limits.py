"""The limits of a burst besides window and pacing: what limited a sender lately, the most that may be in flight."""

from __future__ import annotations

import math
from collections.abc import Sized
from typing import Final

from srd.proto.congestion.rate import DeliveryRate
from srd.proto.paths.rtt import LONG_RTT_S
from srd.proto.wire.data import MAX_DATAGRAM_BYTES

CWND_LIMITED_RTTS: Final = 16
"""Round trips for which a sender counts as limited by window or pacing after either last held data back."""
INFLIGHT_BDPS: Final = 2.0
"""Limit of what is in flight, over the bandwidth-delay product: one is on the way, up to half waits in the fabric's
queues (`delay_target_rtts`), the rest is for the hosts and for a window that grows (BBR's cwnd_gain is 2)."""
SPAN_LIMITS: Final = 4
"""Span of PSNs that may be open, over the packets of that limit: a packet that is lost twice holds the lowest PSN for
four round trips, two until each loss is detected and its retransmission has arrived, and a window is sent in each. At 1
% loss one packet in 10,000 is, several a second on a path of 100 Mbit/s."""
MIN_SPAN_PACKETS: Final = 4096
"""Smallest limit of the span of open PSNs. So many small messages fit into a receiver's socket."""
EXCHANGE_LIMIT_BYTES: Final = 2 << 20
"""Limit of what is in flight to the peers of an endpoint on short paths, while it exchanges short messages. They wait
in the receiver's socket behind that."""
EXCHANGE_S: Final = 0.01
"""An exchange: two short messages, each alone, within this time. Beside a bulk flow a round trip takes milliseconds."""


class SendLimit:
    """What limits a sender; it determines how long its bursts may be.

    `cwnd_limited`: window or pacing do. Acks are then the clock, and a burst has no more packets than were
    acknowledged. Not `cwnd_limited`: something else does (application, credit, CPU), and the window need not grow.
    `cpu_limited`: neither window, pacing nor the application limited it lately, so this CPU or the receiver's does.
    Then no queue is near to full, and long bursts cost less.
    """

    __slots__ = ("_limited_at", "_since")

    def __init__(self) -> None:
        self._limited_at = 0.0  # when window or pacing last held data back
        self._since = math.inf  # since when there was always something to send

    def on_limited(self, now: float) -> None:
        """Note that window or pacing hold data back."""
        self._limited_at = now

    def on_app_limited(self) -> None:
        """Note that there is nothing to send, however large the window."""
        self._since = math.inf

    def on_app_resumed(self, now: float) -> None:
        """Note that there is something to send again."""
        if self._since == math.inf:
            self._since = now

    def cwnd_limited(self, now: float, *, rtt_s: float) -> bool:
        """Whether window or pacing held data back lately."""
        return now - self._limited_at < CWND_LIMITED_RTTS * rtt_s

    def cpu_limited(self, now: float, *, rtt_s: float) -> bool:
        """Whether neither window, pacing nor a lack of work limited the sender lately."""
        return now - max(self._limited_at, self._since) >= CWND_LIMITED_RTTS * rtt_s


class ActivePeers:
    """The peers of an endpoint: how many there are, which of them have packets in flight (`busy`), and exchanges."""

    __slots__ = ("_alone_at", "_exchanging_until", "_members", "busy")

    def __init__(self, members: Sized) -> None:
        self._members = members
        self.busy: set[int] = set()
        self._alone_at = -math.inf  # when a short message was last sent to a peer without other requests
        self._exchanging_until = -math.inf

    def on_short_message(self, now: float) -> None:
        """Note that a message of one packet was sent to a peer that has no other open request."""
        if now - self._alone_at < EXCHANGE_S:
            self._exchanging_until = now + EXCHANGE_S
        self._alone_at = now

    def is_exchanging(self, now: float) -> bool:
        """Whether short messages are exchanged with some peer, one at a time."""
        return now < self._exchanging_until

    def __len__(self) -> int:
        return len(self._members)


class InflightLimit:
    """The most that may be in flight to a peer. Once reached, part of it must be acknowledged before more is sent.

    1. On long paths it is twice the bandwidth-delay product: the delivery rate, the best of the last ten round trips,
       times the smallest round trip. Queueing delay, in the fabric and in hosts, does not count: a larger limit would
       confirm itself.
    2. It is at least a configured minimum, the bytes that hosts may buffer, which applies where round trips are short.
       Peers of one endpoint with packets in flight share this minimum, since all their packets may wait in one socket.
       (A peer that exceeds its share because the share has shrunk has packets in flight, so an ack will come.)
    3. While the endpoint exchanges short messages the minimum is at most `EXCHANGE_LIMIT_BYTES`: throughput is traded
       for their latency only when there are any.
    4. Half of a peer's share must be acknowledged before more is sent: otherwise a receiver that is slower than its
       sender would get one short burst per ack, which costs CPU time at both ends.
    """

    __slots__ = (
        "_active_peers", "_datagram_bytes", "_delivery", "_is_exchanging", "_min_bytes", "_number", "_path_bytes",
        "is_reached", "path_full", "span_packets",
    )  # fmt: skip

    def __init__(self, least_bytes: int, *, datagram_bytes: int, active_peers: ActivePeers, number: int) -> None:
        """Take the minimum in bytes, and the peer's number, its key in `active_peers.busy`."""
        self._min_bytes = least_bytes
        self._datagram_bytes = datagram_bytes
        self._active_peers = active_peers
        self._number = number
        self.is_reached = False
        """Whether nothing more may be sent."""
        self._is_exchanging = False  # as of the last ack
        self.path_full = False
        """Whether it is reached on a path with a limit above its share of the minimum."""
        self._delivery = DeliveryRate()
        self._path_bytes = 0  # INFLIGHT_BDPS bandwidth-delay products; 0 on a short path
        self.span_packets = MIN_SPAN_PACKETS
        """Limit of the span of open PSNs, from the lowest one that is not acknowledged."""

    def on_ack(self, *, now: float, acked_bytes: int, rtt_s: float, min_rtt_s: float) -> None:
        """Follow the delivery rate: `rtt_s` is the smoothed round trip, `min_rtt_s` the smallest or infinity."""
        self._is_exchanging = self._active_peers.is_exchanging(now)
        if not LONG_RTT_S <= min_rtt_s < math.inf:  # infinity: no round trip was measured yet
            self._path_bytes, self.span_packets = 0, MIN_SPAN_PACKETS
            return
        self._delivery.on_ack(now=now, acked_bytes=acked_bytes, span_s=rtt_s)
        self._path_bytes = int(INFLIGHT_BDPS * self._delivery.max_bytes_per_s * min_rtt_s)
        self.span_packets = max(SPAN_LIMITS * self._path_bytes // self._datagram_bytes, MIN_SPAN_PACKETS)

    def on_short_message(self, now: float) -> None:
        """Note that a message of one packet was sent, while this peer has no other open request."""
        self._active_peers.on_short_message(now)

    def update(self, inflight_bytes: int) -> bool:
        """Note what is in flight since packets were sent, acknowledged or lost; return whether the limit is reached."""
        if inflight_bytes:
            self._active_peers.busy.add(self._number)
        else:
            self._active_peers.busy.discard(self._number)
        min_bytes = min(self._min_bytes, EXCHANGE_LIMIT_BYTES) if self._is_exchanging else self._min_bytes
        share_bytes = max(min_bytes // max(len(self._active_peers.busy), 1), MAX_DATAGRAM_BYTES)
        limit_bytes = max(share_bytes, self._path_bytes)
        self.is_reached = inflight_bytes >= (limit_bytes - share_bytes // 2 if self.is_reached else limit_bytes)
        self.path_full = self.is_reached and limit_bytes > share_bytes
        return self.is_reached
