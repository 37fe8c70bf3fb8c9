"""A congestion window that never changes."""

from __future__ import annotations

from srd.proto.config import ProtocolConfig
from srd.proto.controller import Controller


class Fixed(Controller):
    """A window that never changes, practically unpaced."""

    def __init__(self, config: ProtocolConfig, *, packet_bytes: int) -> None:
        self.window_bytes = float(config.initial_window_packets * packet_bytes)

    @property
    def pacing_gain(self) -> float:
        """Practically unpaced."""
        return 100.0

    def on_sample(
        self,
        *,
        now: float,
        queue_s: float,
        endpoint_s: float,
        min_rtt_s: float,
        target_base_s: float,
        variation_s: float,
        ecn_fraction: float,
    ) -> None:
        """Ignore it."""

    def on_ack(self, *, now: float, acked_bytes: int, rtt_s: float, ack_wait_s: float, cwnd_limited: bool) -> None:
        """Ignore it."""

    def on_loss(self, *, now: float, lost_bytes: int, inflight_bytes: int, by_timeout: bool) -> None:
        """Ignore it."""

    def on_all_paths_timeout(self, *, now: float) -> None:
        """Ignore it."""

    def on_spurious_loss(self) -> None:
        """Ignore it."""
