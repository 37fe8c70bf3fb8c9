"""One connection with bulk data, and what its receiver saw: how much came when, and for how long nothing came."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from scripts.harness.client_server import Event, running
from scripts.harness.errors import BenchError
from scripts.harness.perf import START_S
from scripts.harness.two_hosts import TwoHosts
from scripts.harness.worker import worker

WORKER: Final = "scripts.benches.tunnel.worker"
OMIT_S: Final = 1.0
"""Time from the first byte that does not count: slow start."""


@dataclass(frozen=True, slots=True)
class Sockets:
    mptcp: bool = False
    bind: str | None = None
    """The sender's address; None: the kernel's choice."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the receiver saw. Times are CLOCK_MONOTONIC's."""

    samples: tuple[tuple[float, int], ...]
    """Time, and all bytes that have come until then; about every 50 ms."""
    gaps: tuple[tuple[float, float], ...]
    """When nothing came any more, and for how long; the last one may be that of the end."""
    ended_at: float
    """When the sender stopped."""

    @classmethod
    def of(cls, received: Event, sent: Event) -> Seen:
        samples = tuple((at, count) for at, count in received["samples"])
        return cls(samples, tuple((at, seconds) for at, seconds in received["gaps"]), sent["ended_at"])

    def mbps(self) -> float:
        """Return the goodput after `OMIT_S`. Raises BenchError if nothing came then."""
        from_at = self.samples[0][0] + OMIT_S
        counted = [sample for sample in self.samples if from_at <= sample[0] <= self.ended_at]
        if len(counted) < 2:
            raise BenchError("a stream ended before anything could be measured")
        (first_at, first_bytes), (last_at, last_bytes) = counted[0], counted[-1]
        return 8e-6 * (last_bytes - first_bytes) / (last_at - first_at)

    def longest_stall_ms(self, *, since: float, until: float) -> float:
        """Return for how long nothing came at most, of a time that may begin or end in the middle of a gap."""
        within = [min(at + seconds, until) - max(at, since) for at, seconds in self.gaps]
        return max(1e3 * max(within, default=0.0), 0.0)


@contextmanager
def stream(ends: TwoHosts, sockets: Sockets, *, seconds: float) -> Iterator[Callable[[], Seen]]:
    """Run a stream during the block; yields a function that waits for its end."""
    with running(
        ends,
        server=worker(WORKER, "stream_receive", host=ends.receiver, mptcp=sockets.mptcp),
        client=lambda host, port: worker(
            WORKER, "stream_send", host=host, port=port, seconds=seconds, mptcp=sockets.mptcp, bind=sockets.bind
        ),
    ) as ended:

        def seen() -> Seen:
            return Seen.of(*ended(START_S + seconds))

        yield seen
