"""Delivery rate of a peer over all its paths: bytes per second, and bytes of the last round trip."""

from __future__ import annotations


class DeliveryRate:
    """Rate of acknowledged bytes, measured over spans of a round trip; keeps the best of the last ten spans."""

    __slots__ = ("_bytes", "_rates", "_since", "last_bytes_per_s", "last_span_bytes", "max_bytes_per_s")

    SPANS = 10
    """BBR takes the maximum over ten round trips."""

    def __init__(self) -> None:
        self._rates: tuple[float, ...] = ()
        self._since = 0.0
        self._bytes = 0
        self.last_span_bytes = 0
        self.last_bytes_per_s = 0.0
        self.max_bytes_per_s = 0.0

    def on_ack(self, *, now: float, acked_bytes: int, span_s: float) -> None:
        """Count acknowledged bytes; close the span when a round trip has passed."""
        if not self._since:
            self._since = now  # the first ack starts the span; what it acknowledges was sent before
            return
        self._bytes += acked_bytes
        elapsed_s = now - self._since
        if elapsed_s >= span_s > 0:
            self.last_bytes_per_s = self._bytes / elapsed_s
            self._rates = (*self._rates[1 - self.SPANS :], self.last_bytes_per_s)
            self.last_span_bytes, self._bytes, self._since = self._bytes, 0, now
            self.max_bytes_per_s = max(self._rates)
