"""What the receiver has granted, and how often it was not ready: RNR ("receiver not ready") and its retry budget.

A send needs memory of the receiver's, so it starts only when all of it is granted: its bytes, and a message, which
costs memory besides its bytes, and an empty one nothing else. A write with immediate needs no bytes, but its
notification waits for the application as a message does, and takes the credit of one. While the first of these waits,
the peer is asked ever more slowly; an answer that grants nothing is one RNR. A request that was refused so `rnr_retry`
times and once more ends with REMOTE_ERROR_RNR; 7 means for ever, as in InfiniBand and EFA. A grant, however small,
starts the count anew: the receiver is at work.

A receiver may also have promised more than it has, to several peers together: then it drops, and says so in its acks
(NOT_READY). That is an RNR too: nothing is sent until the wait that follows is over, and what was started is what has
been refused. A newly acknowledged packet ends it, as a grant does.

Credit is counted in bytes and in messages from the beginning of the peer's life, and only ever grows.
"""

from __future__ import annotations

RNR_FOR_EVER = 7
"""The `rnr_retry` that has no end (InfiniBand's and EFA's)."""


class Credit:
    """`covers` and `start` a send, `grant` with every ack, `ask` with every probe that asks for more."""

    __slots__ = (
        "_granted_bytes",
        "_granted_messages",
        "_probed",
        "_retries",
        "_rnr_count_at_grant",
        "_started_bytes",
        "_started_messages",
        "retry_at",
        "rnr_count",
    )  # fmt: skip

    def __init__(self, granted_bytes: int, *, granted_messages: int, retries: int) -> None:
        self.rnr_count = 0  # answers that granted nothing though they were asked to
        self.retry_at = 0.0  # after NOT_READY: the time of the next try
        self._granted_bytes = granted_bytes
        self._granted_messages = granted_messages
        self._started_bytes = self._started_messages = 0
        self._retries = retries
        self._rnr_count_at_grant = 0  # rounds when something was granted last
        self._probed = False

    def covers(self, length: int) -> bool:
        """Whether a message that needs so many bytes may start."""
        within_bytes = self._started_bytes + length <= self._granted_bytes
        return within_bytes and self._started_messages < self._granted_messages

    def covered(self, length: int) -> int:
        """Return how many messages of so many bytes may start."""
        messages = self._granted_messages - self._started_messages
        return min(messages, (self._granted_bytes - self._started_bytes) // length) if length else messages

    def consume(self, length: int, *, messages: int) -> None:
        """Take what so many messages need; `length` is the bytes of them all."""
        self._started_bytes += length
        self._started_messages += messages

    def grant(self, granted_bytes: int, *, messages: int) -> None:
        """Note what an ack grants in all."""
        if granted_bytes > self._granted_bytes or messages > self._granted_messages:
            self._granted_bytes = max(granted_bytes, self._granted_bytes)
            self._granted_messages = max(messages, self._granted_messages)
            self._rnr_count_at_grant = self.rnr_count
        elif self._probed:
            self.rnr_count += 1
        self._probed = False

    def on_rnr(self, *, now: float, wait_s: float) -> bool:
        """Note that the receiver dropped for want of memory; return whether that was an answer to a new try."""
        if now < self.retry_at:
            return False  # of what was under way before we knew
        self.rnr_count += 1
        self.retry_at = now + wait_s
        return True

    def on_progress(self) -> None:
        """Note that the receiver is at work."""
        self._rnr_count_at_grant, self.retry_at = self.rnr_count, 0.0

    def on_credit_probe(self) -> None:
        """Note that the receiver is asked whether it is ready now."""
        self._probed = True

    @property
    def rnr_since_grant(self) -> int:
        """Answers without a grant since the last that had one."""
        return self.rnr_count - self._rnr_count_at_grant

    def retries_exhausted(self, since: int) -> bool:
        """Whether the budget of a send that was posted when `rounds` was `since` is spent."""
        return self._retries < RNR_FOR_EVER and self.rnr_count - max(since, self._rnr_count_at_grant) > self._retries
