"""What switches are: buffer, thresholds, classes, marking, watchdog; and how much headroom a link needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

CLASSES: Final = 8
"""802.1p."""
LOSSY: Final = 0
LOSSLESS: Final = 3
"""SONiC's lossless classes are 3 and 4."""
CONTROL: Final = 6
"""Of congestion notifications (SONiC: 802.1p 6); this class and the one above go before all others."""

QUANTUM_BITS: Final = 512
"""802.1Qbb: the timers of a pause are in quanta of so many bit times."""
LONGEST_PAUSE_QUANTA: Final = 65535
"""A timer has 16 bits; switches send the maximum, and refresh it."""
PFC_FRAME_BYTES: Final = 64
RESPONSE_QUANTA: Final = (
    (10, 67), (25, 80), (40, 118), (50, 147), (100, 394), (200, 453), (400, 905),
)  # fmt: skip
"""Rates in Gbit/s, and the time that IEEE 802.3 (annex 31B.3.7) allows a port to obey a pause, in quanta."""
NS_PER_S: Final = 1_000_000_000
BUFFER_BYTES_PER_GBPS: Final = 5000
"""Of a switch, for each Gbit/s of its ports: Tomahawk 3 (64 MB, 12.8 Tbit/s). Trident 2: 9,400; Tomahawk 5: 3,200."""
LEAST_FRAMES: Final = 16
"""Of full size that slow ports have at least, each; and headroom and reserve never take more than half of a buffer."""


def headroom_bytes(*, rate_bps: int, delay_us: float, frame_bytes: int) -> int:
    """Return what a port must keep free for what still arrives after it has decided to pause.

    As SONiC's dynamic headroom calculation: the cable there and back, a frame that is being sent at each end, and the
    response time.
    """
    quanta = next((quanta for gbps, quanta in RESPONSE_QUANTA if rate_bps <= gbps * 1e9), RESPONSE_QUANTA[-1][1])
    cable_bytes = 2 * delay_us * 1e-6 * rate_bps / 8
    return round(cable_bytes) + 2 * frame_bytes + quanta * QUANTUM_BITS // 8


@dataclass(frozen=True, slots=True)
class RedProfile:
    """Marking by the queue that a packet leaves behind (RED): never below `low_bytes`, always above `high_bytes`."""

    low_bytes: int
    high_bytes: int
    most: float = 1.0
    """The probability at `high_bytes`."""

    def probability(self, queue_bytes: int) -> float:
        """Return the probability of a mark."""
        if queue_bytes <= self.low_bytes:
            return 0.0
        if queue_bytes > self.high_bytes:
            return 1.0
        return self.most * (queue_bytes - self.low_bytes) / (self.high_bytes - self.low_bytes)


@dataclass(frozen=True, slots=True)
class ClassProfile:
    """What a switch does with one class."""

    lossless: bool = False
    """Whether it pauses the class instead of dropping its packets."""
    alpha: float = 1.0
    """The dynamic threshold (Choudhury, Hahne 1998) is alpha x the free shared buffer. Of a lossless class it bounds
    the bytes of an ingress port, of another one the queue of an egress port."""
    static_bytes: int | None = None
    """A fixed threshold instead."""
    red: RedProfile | None = None


@dataclass(frozen=True, slots=True)
class WatchdogProfile:
    """SONiC's `pfcwd` with the action `drop`, and its defaults. Times in ms."""

    poll_ms: float = 200.0
    detection_ms: float = 200.0
    restoration_ms: float = 200.0


@dataclass(frozen=True, slots=True)
class SwitchProfile:
    """All switches of a fabric."""

    classes: Mapping[int, ClassProfile] = field(default_factory=lambda: {LOSSY: ClassProfile()})
    """By number; classes that are not listed are as `ClassProfile()`, without a reserve."""
    buffer_bytes: int | None = None
    """Of each switch; None: BUFFER_BYTES_PER_GBPS, and at least LEAST_FRAMES for each port."""
    buffers: Mapping[str, int] = field(default_factory=dict)
    """Of switches that have another one, by name."""
    reserve_bytes: int = 4096
    """Of each ingress port and lossless class (HPCC's simulator: 4 KiB)."""
    headroom_bytes: int | None = None
    """Of each ingress port and lossless class; None: `headroom_bytes` of the link."""
    resume_offset_bytes: int = 18_432
    """A port resumes when it is so far below the threshold: two frames (SONiC: `xon_offset`)."""
    watchdog: WatchdogProfile | None = None
    seed: int = 1
    """Of the marks."""
