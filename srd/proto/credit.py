"""What the receiver has granted, and how often it was not ready: RNR ("receiver not ready") and its retry budget.

A send needs memory of the receiver's, so it starts only when all of it is granted. While the first one waits, the peer
is asked ever more slowly; an answer that grants nothing is one RNR. A request that was refused so `rnr_retry` times
and once more ends with REMOTE_ERROR_RNR; 7 means for ever, as in InfiniBand and EFA. A grant, however small, starts
the count anew: the receiver is at work.

A receiver may also have promised more than it has, to several peers together: then it drops, and says so in its acks
(NOT_READY). That is an RNR too: nothing is sent until the wait that follows is over, and what was started is what has
been refused. A newly acknowledged packet ends it, as a grant does.

Credit is counted in bytes of sends from the beginning of the peer's life, and only ever grows.
"""

from __future__ import annotations

RNR_FOR_EVER = 7
"""The `rnr_retry` that has no end (InfiniBand's and EFA's)."""


class Credit:
    """`covers` and `start` a send, `grant` with every ack, `ask` with every probe that asks for more."""

    __slots__ = ("_asked", "_forgiven", "_granted_bytes", "_retries", "_started_bytes", "hold_until", "rounds")

    def __init__(self, granted_bytes: int, *, retries: int) -> None:
        self.rounds = 0  # answers that granted nothing though they were asked to
        self.hold_until = 0.0  # after NOT_READY: the time of the next try
        self._granted_bytes = granted_bytes
        self._started_bytes = 0
        self._retries = retries
        self._forgiven = 0  # rounds when something was granted last
        self._asked = False

    def covers(self, length: int) -> bool:
        """Whether a send of so many bytes may start."""
        return self._started_bytes + length <= self._granted_bytes

    def covered(self, length: int) -> int:
        """Return how many sends of so many bytes may start."""
        return (self._granted_bytes - self._started_bytes) // max(length, 1)

    def start(self, length: int) -> None:
        """Take what a send needs."""
        self._started_bytes += length

    def grant(self, granted_bytes: int) -> None:
        """Note what an ack grants in all."""
        if granted_bytes > self._granted_bytes:
            self._granted_bytes, self._forgiven = granted_bytes, self.rounds
        elif self._asked:
            self.rounds += 1
        self._asked = False

    def refuse(self, *, now: float, wait_s: float) -> bool:
        """Note that the receiver dropped for want of memory; return whether that was an answer to a new try."""
        if now < self.hold_until:
            return False  # of what was under way before we knew
        self.rounds += 1
        self.hold_until = now + wait_s
        return True

    def forgive(self) -> None:
        """Note that the receiver is at work."""
        self._forgiven, self.hold_until = self.rounds, 0.0

    def ask(self) -> None:
        """Note that the receiver is asked whether it is ready now."""
        self._asked = True

    @property
    def refusals(self) -> int:
        """Answers without a grant since the last that had one."""
        return self.rounds - self._forgiven

    def spent(self, since: int) -> bool:
        """Whether the budget of a send that was posted when `rounds` was `since` is spent."""
        return self._retries < RNR_FOR_EVER and self.rounds - max(since, self._forgiven) > self._retries
