"""A token bucket that spreads a window over its round trip, so that a window is not a burst.

It also makes windows below one packet possible: at a window of half a packet the bucket refills one packet in two
round trips (Swift, SIGCOMM 2020, section 3.4).

A bucket that ran empty is left alone until it is half full, so that a sender is woken once for several bursts: being
woken costs an interpreter more than sending one. So is the ceiling of what may be in flight, once it was reached.
"""

from __future__ import annotations

from collections.abc import Sized

from srd.proto.wire import MAX_DATAGRAM_BYTES


class Pacer:
    """`release_at` says when a burst may go; `charge` when it went."""

    __slots__ = ("_debt_until", "_depth_s", "_empty")

    def __init__(self, *, depth_s: float) -> None:
        """`depth_s` is what the bucket holds, in time at the pace."""
        self._depth_s = depth_s
        # The bucket as a point in time: everything sent so far would have left, at the pace, by then.
        self._debt_until = 0.0
        self._empty = False

    def release_at(self) -> float:
        """Return the time from which the next burst may be sent."""
        return self._debt_until - self._depth_s

    def hold(self, *, until: float) -> None:
        """Send nothing before `until`."""
        self._debt_until = max(self._debt_until, until + self._depth_s)

    def charge(self, size_bytes: int, *, now: float, rate_bytes_per_s: float) -> None:
        """Account for a burst sent at `now`."""
        self._debt_until = max(self._debt_until, now) + size_bytes / rate_bytes_per_s
        self._empty = self._debt_until - now > self._depth_s


class Crowd:
    """All peers of an endpoint: how many there are, and which of them have packets on the way."""

    __slots__ = ("_members", "busy")

    def __init__(self, members: Sized) -> None:
        self._members = members
        self.busy: set[int] = set()

    def __len__(self) -> int:
        return len(self._members)


class Ceiling:
    """The most that may be in flight to a peer. Once it is reached, half of it is answered before more is sent.

    A receiver that is slower than its sender would get a short burst for each ack, which costs both ends more: over
    veth, MTU 9000, 18.7/25.5/23.3 -> 27.2/26.8/24.2 Gbit/s. Peers of one endpoint that are at work share the most: all
    of theirs may wait in one socket. (Who has reached a share that is smaller now has packets on the way, so that an
    ack will come.)
    """

    __slots__ = ("_crowd", "_full", "_most_bytes", "_number")

    def __init__(self, most_bytes: int, *, crowd: Crowd, number: int) -> None:
        """Take the peer's number, by which it is one of the crowd."""
        self._most_bytes = most_bytes
        self._crowd = crowd
        self._number = number
        self._full = False

    def reached(self, inflight_bytes: int) -> bool:
        """Whether nothing more may be sent while so much is in flight."""
        if inflight_bytes:
            self._crowd.busy.add(self._number)
        else:
            self._crowd.busy.discard(self._number)
        most_bytes = max(self._most_bytes // max(len(self._crowd.busy), 1), MAX_DATAGRAM_BYTES)
        self._full = inflight_bytes >= (most_bytes // 2 if self._full else most_bytes)
        return self._full
