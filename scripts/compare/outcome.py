"""The outcome of one transfer, and the medians of several.

Rules. A transfer that did not deliver every byte, verified, within its time limit has no `seconds`. Its goodput is the
received bytes over the time limit, and the time since its last byte counts as a stall. Medians are taken per figure;
path shares are means; a condition is completed and verified only if every round was.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Samples = tuple[tuple[float, int], ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One transfer."""

    completed: bool
    """Whether the receiver's verification of every byte reached the sender within the time limit."""

    sha256_ok: bool
    """Whether the received file is correct: read back from the directory, not as reported by the daemons."""

    byte_count: int
    """Bytes that the receiver got."""

    elapsed_s: float
    """Time from the sender's connect to the verification result; if not completed, from first byte to timeout."""

    longest_stall_ms: float
    """Longest time without new bytes at the receiver."""

    path_shares: tuple[float, ...]
    """Share of the bytes that went over each spine; sums to 1, or to 0 if nothing was sent."""

    retransmitted_fraction: float | None = None
    """Fraction of the sent bytes that were retransmissions; None if the sender does not report it."""

    progress: Samples = ()
    """(seconds since the first byte, bytes) about every 50 ms."""

    blackhole_at_s: float | None = None
    """Time when the spine failed, on the clock of `progress`."""

    blackholed: str | None = None
    """The spine that failed."""

    relay_cpu_fraction: float | None = None
    """Share of one core that the relay used, on the relay backend."""

    machine_busy_fraction: float | None = None
    """Share of all the machine's cores that was in use, by any process."""

    stolen_fraction: float | None = None
    """Share of all cores that a hypervisor gave to others, which pauses this machine for milliseconds."""

    failure: str | None = None
    """Why it did not complete, in one line."""

    note: str | None = None
    """A remark for the reader about this figure, in one line."""

    @property
    def goodput_bps(self) -> float:
        """Payload bits over time."""
        return 8 * self.byte_count / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def seconds(self) -> float | None:
        """Completion time."""
        return self.elapsed_s if self.completed else None

    @property
    def verified(self) -> bool:
        """Completed, and right."""
        return self.completed and self.sha256_ok

    def to_dict(self) -> dict[str, Any]:
        """Return the figures for report.json."""
        return {
            "goodput_bps": round(self.goodput_bps),
            "seconds": _rounded(self.seconds, digits=4),
            "retransmitted_fraction": _rounded(self.retransmitted_fraction, digits=6),
            "longest_stall_ms": round(self.longest_stall_ms, 2),
            "path_shares": [round(share, 4) for share in self.path_shares],
            "sha256_ok": self.sha256_ok,
            "completed": self.completed,
            "bytes": self.byte_count,
            "relay_cpu_fraction": _rounded(self.relay_cpu_fraction, digits=3),
            "machine_busy_fraction": _rounded(self.machine_busy_fraction, digits=3),
            "stolen_fraction": _rounded(self.stolen_fraction, digits=3),
            "blackholed": self.blackholed,
            "blackhole_at_s": _rounded(self.blackhole_at_s, digits=3),
            "failure": self.failure,
            "note": self.note,
        }


def summary(rounds: Sequence[Outcome]) -> dict[str, Any]:
    """Return the medians of `rounds` (one at least) for report.json, with each round's own figures.

    `progress` is that of the round with the median goodput, which is also the one that plots show.
    """
    typical = sorted(rounds, key=lambda outcome: outcome.goodput_bps)[(len(rounds) - 1) // 2]
    completed = all(outcome.completed for outcome in rounds)
    return {
        **typical.to_dict(),
        "goodput_bps": round(statistics.median(outcome.goodput_bps for outcome in rounds)),
        "seconds": _median(rounds, lambda outcome: outcome.seconds, digits=4) if completed else None,
        "retransmitted_fraction": _median(rounds, lambda outcome: outcome.retransmitted_fraction, digits=6),
        "longest_stall_ms": _median(rounds, lambda outcome: outcome.longest_stall_ms, digits=2),
        "path_shares": [
            round(statistics.mean(shares), 4)
            for shares in zip(*(outcome.path_shares for outcome in rounds), strict=True)
        ],
        "sha256_ok": all(outcome.sha256_ok for outcome in rounds),
        "completed": completed,
        "relay_cpu_fraction": _median(rounds, lambda outcome: outcome.relay_cpu_fraction, digits=3),
        "machine_busy_fraction": _median(rounds, lambda outcome: outcome.machine_busy_fraction, digits=3),
        "stolen_fraction": _median(rounds, lambda outcome: outcome.stolen_fraction, digits=3),
        "failure": next((outcome.failure for outcome in rounds if outcome.failure), None),
        "note": next((outcome.note for outcome in rounds if outcome.note), None),
        "progress": [[round(seconds, 3), count] for seconds, count in typical.progress],
        "rounds": [outcome.to_dict() for outcome in rounds],
    }


def longest_gap_s(progress: Samples, *, until_s: float) -> float:
    """Return the longest time without new bytes in `progress`, the time up to `until_s` included.

    For transfers that did not complete; the resolution is that of the samples (50 ms).
    """
    longest = last_at = 0.0
    last_bytes = 0
    for seconds, count in progress:
        if count > last_bytes:
            longest, last_at, last_bytes = max(longest, seconds - last_at), seconds, count
    return max(longest, until_s - last_at)


def shares(byte_counts: Sequence[int]) -> tuple[float, ...]:
    """Return each count's share of their sum; zeros if nothing was counted."""
    total = sum(byte_counts)
    return tuple(count / total if total else 0.0 for count in byte_counts)


def _median(rounds: Sequence[Outcome], figure: Callable[[Outcome], float | None], *, digits: int) -> float | None:
    known = [value for outcome in rounds if (value := figure(outcome)) is not None]
    return round(statistics.median(known), digits) if known else None


def _rounded(value: float | None, *, digits: int) -> float | None:
    return None if value is None else round(value, digits)
