"""The counters of fabric and machine at one moment; two of them make shares."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scripts.compare.fabric import Fabric
from scripts.compare.outcome import shares

_IDLE_FIELDS: Final = (3, 4)  # idle and iowait, of the fields after "cpu" in /proc/stat (proc_stat(5))
_FIELDS: Final = 8  # user nice system idle iowait irq softirq steal; guest time is within user and nice


@dataclass(frozen=True, slots=True)
class Reading:
    """The counters at one moment."""

    at: float
    """Monotonic time, in seconds."""

    uplink_bytes: tuple[int, ...]
    """Bytes that went up to each spine."""

    relay_cpu_seconds: float | None
    """CPU time of the relay; None on a kernel fabric."""

    machine_ticks: tuple[int, int]
    """Clock ticks of all CPUs: busy, and all."""

    @classmethod
    def take(cls, fabric: Fabric) -> Reading:
        """Read them now."""
        return cls(
            at=time.monotonic(),
            uplink_bytes=fabric.uplink_bytes(),
            relay_cpu_seconds=fabric.relay_cpu_seconds(),
            machine_ticks=machine_ticks(Path("/proc/stat").read_text()),
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
        """Return how busy all cores together were since then, whoever kept them so; None within a clock tick."""
        busy, total = (now - then for then, now in zip(since.machine_ticks, self.machine_ticks, strict=True))
        return busy / total if total > 0 else None


def machine_ticks(stat: str) -> tuple[int, int]:
    """Return (busy, all) clock ticks from the text of /proc/stat."""
    ticks = [int(field) for field in stat.split(maxsplit=_FIELDS + 1)[1 : _FIELDS + 1]]
    return sum(ticks) - sum(ticks[field] for field in _IDLE_FIELDS), sum(ticks)
