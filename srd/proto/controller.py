"""The interface between a peer and its congestion controller."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)  # a user's controller may be an ordinary class
class Controller(ABC):
    """What a peer reports to its congestion controller, and what it reads from it."""

    window_bytes: float
    """Congestion window: how much may be in flight; may be less than a packet."""

    @abstractmethod
    def on_ack(self, *, now: float, acked_bytes: int, rtt_s: float, ack_wait_s: float, cwnd_limited: bool) -> None:
        """Note that `acked_bytes` were newly acknowledged; `rtt_s` is the peer's smoothed round-trip time.

        `ack_wait_s`: how long the ack waited in this host. `cwnd_limited`: whether window or pacing held data back
        lately.
        """

    @abstractmethod
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
        """Take one path's report: the queueing delay in the fabric and the delay in the receiving host.

        `min_rtt_s` is the path's base round trip, `target_base_s` that of the path whose delay target applies,
        `variation_s` the mean deviation of its round trips or ways there (see `queueing`), `ecn_fraction` the fraction
        of this report's packets that carried a congestion mark, 0 to 1.
        """

    @abstractmethod
    def on_loss(self, *, now: float, lost_bytes: int, inflight_bytes: int, by_timeout: bool) -> None:
        """Note that packets were declared lost; `inflight_bytes` are still in flight.

        `by_timeout`: some were declared lost by timeout alone, so that they may only be late.
        """

    @abstractmethod
    def on_all_paths_timeout(self, *, now: float) -> None:
        """Note that no path is active any more."""

    @abstractmethod
    def on_spurious_loss(self) -> None:
        """Note that packets declared lost, or acknowledgements that were missing, were only late."""

    @property
    @abstractmethod
    def pacing_gain(self) -> float:
        """Pacing rate over window / round trip."""

    def bytes_per_s(self, rtt_s: float) -> float:
        """Pacing rate: how fast bursts follow each other."""
        return self.pacing_gain * self.window_bytes / rtt_s


ControllerFactory = Callable[..., Controller]
"""Makes the controller of a new peer, from its `ProtocolConfig` and `packet_bytes`, the size of a full datagram."""
