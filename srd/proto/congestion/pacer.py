"""A token bucket that spreads a window over its round trip, so that a window is not a burst.

It also makes windows below one packet possible: at a window of half a packet the bucket refills one packet in two
round trips (Swift, SIGCOMM 2020, section 3.4).

With it, what else says how much goes at once: what limited a sender lately, and the ceiling of what may be in flight.
"""

from __future__ import annotations

import math
from collections.abc import Sized

from srd.proto.congestion.rate import DeliveryRate
from srd.proto.wire.data import MAX_DATAGRAM_BYTES

CWND_LIMITED_RTTS = 16
"""Round trips after window or pace last held a sender back during which it counts as limited by them."""
INFLIGHT_BDPS = 2.0
"""Limit of what is in flight, over the bandwidth-delay product: one is on the way, up to half waits in the fabric's
queues (`delay_target_rtts`), the rest is for what hosts hold and for a window that grows (BBR's cwnd_gain is 2)."""
LONG_RTT_S = 0.01
"""Smallest round trip from which a path counts as long. Of a shorter one busy hosts may be the most: with 100 peers at
work on one host none is ever shorter than some milliseconds. At 10 ms the least limit (8 MiB) is worth 6.7 Gbit/s."""
SPAN_LIMITS = 2
"""PSNs that may be open, over the packets of that limit: a lost packet holds the lowest one for two round trips, one
until it is missed and one until it has arrived again, and a new window is sent in each."""
MIN_SPAN_PACKETS = 4096
"""PSNs that may be open at least. Small messages of so many packets fit into a receiver's socket."""


class Pacer:
    """`release_at` says when a burst may go; `charge` when it went."""

    __slots__ = ("_debt_until", "_depth_s")

    def __init__(self, *, depth_s: float) -> None:
        """`depth_s` is what the bucket holds, in time at the pace."""
        self._depth_s = depth_s
        # The bucket as a point in time: everything sent so far would have left, at the pace, by then.
        self._debt_until = 0.0

    def release_at(self) -> float:
        """Return the time from which the next burst may be sent."""
        return self._debt_until - self._depth_s

    def hold(self, *, until: float) -> None:
        """Send nothing before `until`."""
        self._debt_until = max(self._debt_until, until + self._depth_s)

    def charge(self, size_bytes: int, *, now: float, rate_bytes_per_s: float) -> None:
        """Account for a burst sent at `now`."""
        self._debt_until = max(self._debt_until, now) + size_bytes / rate_bytes_per_s


class SendLimit:
    """What limits a sender, which says how long its bursts may be.

    `clocked`: window and pace do, whose clock the acks are; a burst is as short as what was answered. Not `clocked`:
    something else does (application, credit, processor), and a window need not grow. `free`: nor has it run out of work
    lately, so that it is the processor, or the receiver's; no queue is near to full, and long bursts cost less.
    """

    __slots__ = ("_limited_at", "_since")

    def __init__(self) -> None:
        self._limited_at = 0.0  # when window or pace last held anything back
        self._since = math.inf  # since when there was always something to send

    def on_limited(self, now: float) -> None:
        """Note that window or pace hold something back."""
        self._limited_at = now

    def on_app_limited(self) -> None:
        """Note that there is nothing that may be sent, were the window wider."""
        self._since = math.inf

    def on_app_resumed(self, now: float) -> None:
        """Note that there is."""
        if self._since == math.inf:
            self._since = now

    def cwnd_limited(self, now: float, *, rtt_s: float) -> bool:
        """Whether window or pace held anything back lately."""
        return now - self._limited_at < CWND_LIMITED_RTTS * rtt_s

    def cpu_limited(self, now: float, *, rtt_s: float) -> bool:
        """Whether neither they nor a want of work did."""
        return now - max(self._limited_at, self._since) >= CWND_LIMITED_RTTS * rtt_s


class ActivePeers:
    """All peers of an endpoint: how many there are, and which of them have packets on the way."""

    __slots__ = ("_members", "busy")

    def __init__(self, members: Sized) -> None:
        self._members = members
        self.busy: set[int] = set()

    def __len__(self) -> int:
        return len(self._members)


class InflightLimit:
    """The most that may be in flight to a peer. Once it is reached, part of it is answered before more is sent.

    1. It is twice the bandwidth-delay product: what was delivered a second, in the best of the last ten round trips,
       times the smallest round trip, where that is long. Queues, in the fabric and in hosts, do not count: they would
       confirm themselves.
    2. It is at least what hosts may hold, which rules where round trips are short. Peers of one endpoint that are at
       work share this least amount: all of theirs may wait in one socket. (Who has reached a share that is smaller now
       has packets on the way, so that an ack will come.)
    3. Half of a peer's share of it is answered before more is sent: a receiver that is slower than its sender would get
       a short burst for each ack, which costs both ends more: over veth, MTU 9000, 18.7/25.5/23.3 -> 27.2/26.8/24.2
       Gbit/s.
    """

    __slots__ = (
        "_active_peers", "_datagram_bytes", "_delivery", "_full", "_min_bytes", "_number", "_path_bytes", "path_full",
        "span_packets",
    )  # fmt: skip

    def __init__(self, least_bytes: int, *, datagram_bytes: int, active_peers: ActivePeers, number: int) -> None:
        """Take the peer's number, by which it is one of the crowd."""
        self._min_bytes = least_bytes
        self._datagram_bytes = datagram_bytes
        self._active_peers = active_peers
        self._number = number
        self._full = False
        self.path_full = False
        """Whether it was reached when last asked, on a path that is worth more than the least."""
        self._delivery = DeliveryRate()
        self._path_bytes = 0  # what the path to the peer is worth: INFLIGHT_BDPS bandwidth-delay products
        self.span_packets = MIN_SPAN_PACKETS
        """The most PSNs that may be open, from the lowest one that is not acknowledged."""

    def on_ack(self, *, now: float, acked_bytes: int, rtt_s: float, min_rtt_s: float) -> None:
        """Follow what is delivered: `rtt_s` is the smoothed round trip, `min_rtt_s` the smallest or infinity."""
        if not LONG_RTT_S <= min_rtt_s < math.inf:  # the latter: no ack has told of a round trip yet
            self._path_bytes, self.span_packets = 0, MIN_SPAN_PACKETS
            return
        self._delivery.on_ack(now=now, acked_bytes=acked_bytes, span_s=rtt_s)
        self._path_bytes = int(INFLIGHT_BDPS * self._delivery.max_bytes_per_s * min_rtt_s)
        self.span_packets = max(SPAN_LIMITS * self._path_bytes // self._datagram_bytes, MIN_SPAN_PACKETS)

    def is_reached(self, inflight_bytes: int) -> bool:
        """Whether nothing more may be sent while so much is in flight."""
        if inflight_bytes:
            self._active_peers.busy.add(self._number)
        else:
            self._active_peers.busy.discard(self._number)
        share_bytes = max(self._min_bytes // max(len(self._active_peers.busy), 1), MAX_DATAGRAM_BYTES)
        limit_bytes = max(share_bytes, self._path_bytes)
        self._full = inflight_bytes >= (limit_bytes - share_bytes // 2 if self._full else limit_bytes)
        self.path_full = self._full and limit_bytes > share_bytes
        return self._full
