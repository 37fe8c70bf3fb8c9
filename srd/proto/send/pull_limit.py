"""The sender's half of receiver-driven credit (PROTOCOL.md, section 10, Pulls; the other one is `recv.pulls`).

1. The limit counts everything that was sent, retransmissions too: a packet that was lost needs another pull.
2. Requests are repeated at random times, since many senders ask at the same instant; much later once an answer has
   shown that this sender has its place among the others.
3. A receiver that never grants anything cannot stall a sender for ever (`PATIENCE`). Sooner, all senders to a host that
   is slow for a moment would send unasked.
4. A receiver that needs no pulls any more sets no limit, until the sender is idle.

A PULL only ever restricts: window and pacing apply as without it.
"""

from __future__ import annotations

import math
from random import Random
from typing import Final

from srd.proto.wire.control import ANY_BYTES, NO_LIMIT_BYTES, Pull, PullRequest

REQUEST_RTTS: Final = 2.0
"""Round trips until an unanswered request is repeated; doubled each time."""
WAIT_RTTS: Final = 64.0
"""Round trips until a request that was answered is repeated: the others' turns may take as long."""
PATIENCE: Final = 8
"""Requests in a row that bring nothing before each allows a packet: with the back-off hundreds of round trips."""
MAX_REQUEST_INTERVAL_S: Final = 0.25
"""Largest interval of requests, as of keepalive probes."""


class PullLimit:
    """`room_packets` may be sent; `note_room`, since without any a `request` is due at `ask_at`."""

    __slots__ = (
        "_announced_bytes", "_blocked_at", "_granted_bytes", "_interval_s", "_number", "_requests", "_rng", "_turn_s",
        "_unsolicited_bytes", "ask_at", "limit_bytes", "sent_bytes",
    )  # fmt: skip

    def __init__(self, *, sent_bytes: int = 0, rng: Random) -> None:
        self.sent_bytes = sent_bytes
        """Data packets with their headers, as the receiver counts them."""
        self.limit_bytes = NO_LIMIT_BYTES
        self.ask_at = math.inf
        """When the next request is due; infinite while nothing waits for a pull."""
        self._unsolicited_bytes = ANY_BYTES
        self._announced_bytes = 0  # what will have been sent in all when the backlog of the last request was sent
        self._number = 0  # of the last PULL
        self._interval_s = 0.0
        self._granted_bytes = 0  # limit of the last PULL
        self._blocked_at = 0.0
        self._turn_s = 0.0  # that the last turn took to come
        self._requests = 0  # in a row that brought nothing
        self._rng = rng

    @property
    def applies(self) -> bool:
        """Whether there is a limit."""
        return self.limit_bytes < NO_LIMIT_BYTES

    def room_packets(self, packet_bytes: int, *, inflight_bytes: int) -> int:
        """Return how many packets of so many bytes may be sent now. There must be a limit."""
        pulled = -((self.sent_bytes - self.limit_bytes) // packet_bytes)  # the last packet may exceed the limit
        return max(pulled, (self._unsolicited_bytes - inflight_bytes) // packet_bytes, 0)

    def on_pull(self, pull: Pull, *, now: float, rtt_s: float) -> None:
        """Process a PULL."""
        if pull.number <= self._number:
            return  # it was overtaken
        self._number = pull.number
        self._unsolicited_bytes = pull.unsolicited_bytes
        grants = pull.limit_bytes > self.sent_bytes
        self.limit_bytes = NO_LIMIT_BYTES if pull.unsolicited_bytes == ANY_BYTES else pull.limit_bytes
        if pull.limit_bytes > self._granted_bytes:
            self._requests = 0  # even if what was sent unasked has used it up
        self._granted_bytes = pull.limit_bytes
        if self.ask_at == math.inf:
            return
        if grants:
            self._turn_s, self.ask_at = now - self._blocked_at, math.inf
        else:
            self._schedule(now=now, interval_s=max(self._interval_s, self._wait_s(rtt_s)))

    def note_room(self, packets: int, *, now: float, rtt_s: float) -> None:
        """Note how many packets there is room for, of those that there are: without room they wait for a pull."""
        if packets:
            self.ask_at = math.inf
        elif self.ask_at == math.inf:
            self._blocked_at = now
            if self._announced_bytes > self.limit_bytes:
                self._schedule(now=now, interval_s=self._wait_s(rtt_s))
            else:
                self.ask_at, self._interval_s = now, REQUEST_RTTS * rtt_s

    def on_lost(self) -> None:
        """Note that packets were lost: what was asked for does not suffice."""
        self._announced_bytes, self.ask_at = 0, math.inf

    def on_idle(self) -> None:
        """Note that every request is done: what has no limit now has one again with the next message."""
        if self._unsolicited_bytes < ANY_BYTES and not self.applies:
            self.limit_bytes = self.sent_bytes
        self.ask_at = math.inf

    def request(self, *, context: int, backlog_bytes: int, path: int, now: float) -> PullRequest:
        """Return the request that is due."""
        self._requests += 1
        if self._requests >= PATIENCE and self._interval_s >= MAX_REQUEST_INTERVAL_S:
            self.limit_bytes = max(self.limit_bytes, self.sent_bytes + 1)
        self._announced_bytes = self.sent_bytes + backlog_bytes
        self._schedule(now=now, interval_s=self._interval_s)
        self._interval_s *= 2
        return PullRequest(context, self.sent_bytes, backlog_bytes, self._number, path)

    def _wait_s(self, rtt_s: float) -> float:
        """Return the time until an answered request is repeated."""
        return max(WAIT_RTTS * rtt_s, 2 * self._turn_s)

    def _schedule(self, *, now: float, interval_s: float) -> None:
        self._interval_s = min(interval_s, MAX_REQUEST_INTERVAL_S)
        self.ask_at = now + self._interval_s * (0.5 + self._rng.random())
