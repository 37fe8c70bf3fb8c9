"""Credit granted by the receiver, and RNR ("receiver not ready") with its retry budget (PROTOCOL.md, section 10).

A send takes credit for its bytes, and for one message, since each costs memory besides, an empty one too. A write with
immediate takes that of one message: its notification waits for the application. An answer to a probe for credit that
grants nothing is an RNR; so is NOT_READY, when a receiver has granted more memory than it has, to several peers. A
grant, however small, or a newly acknowledged packet restarts the count: the receiver makes progress.
"""

from __future__ import annotations

from srd.proto.config import RNR_FOR_EVER


class Credit:
    """`covered` and `consume` for a send, `grant` for every ack, `on_credit_probe` for every probe for credit."""

    __slots__ = (
        "_granted_bytes", "_granted_messages", "_probed", "_retries", "_rnr_count_at_grant", "_started_bytes",
        "_started_messages", "retry_at", "rnr_count",
    )  # fmt: skip

    def __init__(self, granted_bytes: int, *, granted_messages: int, retries: int) -> None:
        self.rnr_count = 0  # RNRs: answers to a probe for credit that granted nothing, and NOT_READY
        self.retry_at = 0.0  # after NOT_READY: the time of the next try
        self._granted_bytes = granted_bytes
        self._granted_messages = granted_messages
        self._started_bytes = self._started_messages = 0
        self._retries = retries
        self._rnr_count_at_grant = 0  # `rnr_count` at the last grant or progress
        self._probed = False

    def covered(self, length: int) -> int:
        """Return how many messages of so many bytes may start."""
        messages = self._granted_messages - self._started_messages
        return min(messages, (self._granted_bytes - self._started_bytes) // length) if length else messages

    def consume(self, length: int, *, messages: int) -> None:
        """Consume the credit of so many messages; `length` is the sum of their bytes."""
        self._started_bytes += length
        self._started_messages += messages

    def grant(self, granted_bytes: int, *, messages: int) -> None:
        """Process the totals that an ack grants."""
        if granted_bytes > self._granted_bytes or messages > self._granted_messages:
            self._granted_bytes = max(granted_bytes, self._granted_bytes)
            self._granted_messages = max(messages, self._granted_messages)
            self._rnr_count_at_grant = self.rnr_count
        elif self._probed:
            self.rnr_count += 1
        self._probed = False

    def on_rnr(self, *, now: float, wait_s: float) -> bool:
        """Note that the receiver dropped packets for lack of memory; return whether that answers a new try."""
        if now < self.retry_at:
            return False  # it answers packets that were in flight before the first one
        self.rnr_count += 1
        self.retry_at = now + wait_s
        return True

    def on_progress(self) -> None:
        """Note that the receiver makes progress: the count of RNRs starts anew."""
        self._rnr_count_at_grant, self.retry_at = self.rnr_count, 0.0

    def on_credit_probe(self) -> None:
        """Note that a probe for credit was sent."""
        self._probed = True

    @property
    def rnr_since_grant(self) -> int:
        """RNRs since the last grant or progress."""
        return self.rnr_count - self._rnr_count_at_grant

    def retries_exhausted(self, since: int) -> bool:
        """Whether the budget of a send that was posted when `rnr_count` was `since` is spent."""
        return self._retries < RNR_FOR_EVER and self.rnr_count - max(since, self._rnr_count_at_grant) > self._retries
