"""What the peer tells a congestion controller and asks of it, and the controller that ignores all of it."""

from __future__ import annotations

from abc import ABC, abstractmethod

from mypy_extensions import mypyc_attr

from srd.proto.config import ProtocolConfig


@mypyc_attr(allow_interpreted_subclasses=True)  # one of your own may be an ordinary class
class Controller(ABC):
    """What the peer tells a controller, and what it asks."""

    window_bytes: float
    """How much may be in flight; may be less than a packet."""

    @abstractmethod
    def on_ack(self, *, now: float, acked_bytes: int, rtt_s: float, ack_wait_s: float, cwnd_limited: bool) -> None:
        """`acked_bytes` were newly acknowledged; `rtt_s` is the peer's round-trip time, smoothed.

        `ack_wait_s`: how long this host let the ack wait. `limited`: window or pace have held something back lately.
        """

    @abstractmethod
    def on_sample(
        self,
        *,
        now: float,
        queue_s: float,
        endpoint_s: float,
        min_rtt_s: float,
        variation_s: float,
        ecn_fraction: float,
    ) -> None:
        """Take one path's report: time spent in the fabric's queues and inside the receiving host.

        `min_rtt_s` is how long the path is, `variation_s` its mean deviation of round trips, `marked` the share of the
        packets of this report that bore a congestion mark, 0 to 1.
        """

    @abstractmethod
    def on_loss(self, *, now: float, lost_bytes: int, inflight_bytes: int, by_timeout: bool) -> None:
        """Note that packets were found lost, while others still are in flight.

        `silent`: by timeout alone, so that they may be late.
        """

    @abstractmethod
    def on_all_paths_timeout(self, *, now: float) -> None:
        """No path answers any more."""

    @abstractmethod
    def on_spurious_loss(self) -> None:
        """What was lost, or the answers that were missing, turned out to be only late."""

    @property
    @abstractmethod
    def pacing_gain(self) -> float:
        """Pace over window / round trip."""

    def bytes_per_s(self, rtt_s: float) -> float:
        """How fast bursts follow each other."""
        return self.pacing_gain * self.window_bytes / rtt_s


class Fixed(Controller):
    """A window that never changes: for tests and for measuring without control."""

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
