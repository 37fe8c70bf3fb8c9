"""The counters of fabric and machine at one time; the difference of two readings gives shares."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from netns.observe.machine import Ticks
from scripts.compare.fabric import Fabric
from scripts.compare.outcome import shares


@dataclass(frozen=True, slots=True)
class Reading:
    """The counters at one time."""

    at: float
    """Monotonic time, in seconds."""

    uplink_bytes: tuple[int, ...]
    """Bytes sent up to each spine."""

    relay_cpu_seconds: float | None
    """CPU time of the relay; None on the kernel backend."""

    ticks: Ticks
    """Clock ticks of all CPUs."""

    @classmethod
    def take(cls, fabric: Fabric) -> Reading:
        """Read them now."""
        return cls(
            at=time.monotonic(),
            uplink_bytes=fabric.uplink_bytes(),
            relay_cpu_seconds=fabric.relay_cpu_seconds(),
            ticks=Ticks.parse(Path("/proc/stat").read_text()),
        )

    def path_shares(self, *, since: Reading) -> tuple[float, ...]:
        """Return each spine's share of the bytes since then."""
        return shares([now - then for then, now in zip(since.uplink_bytes, self.uplink_bytes, strict=True)])

    def relay_cpu_fraction(self, *, since: Reading) -> float | None:
        """Return the share of one core that the relay used since then."""
        if self.relay_cpu_seconds is None or since.relay_cpu_seconds is None or self.at <= since.at:
            return None
        return (self.relay_cpu_seconds - since.relay_cpu_seconds) / (self.at - since.at)

    def machine_busy_fraction(self, *, since: Reading) -> float | None:
        """Return the share of all cores in use since then, by any process; None within one clock tick."""
        return self.ticks.share(self.ticks.busy - since.ticks.busy, since=since.ticks)

    def stolen_fraction(self, *, since: Reading) -> float | None:
        """Return the share of all cores given to other guests since then (steal); None within one clock tick."""
        return self.ticks.share(self.ticks.stolen - since.ticks.stolen, since=since.ticks)
