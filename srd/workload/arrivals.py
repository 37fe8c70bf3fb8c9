"""What has arrived at a host: verified, counted, and when nothing did."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from srd.errors import SrdError
from srd.perf.payload import Source
from srd.workload.plan import Address, Flow


class WorkloadError(SrdError):
    """A workload cannot go on; one line for the user."""


class Arrivals:
    """The flows that this host receives."""

    def __init__(self, source: Source, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._left: dict[int, int] = {}
        self._last_at: float | None = None
        self.size_bytes = 0
        """Of all flows, the byte that tries a connection excepted."""
        self.longest_stall_s = 0.0
        """Longest time without a byte between the start and the last one."""

    def expect(self, arriving: Mapping[int, int]) -> None:
        """Set what is to come."""
        self._left = dict(arriving)

    def start(self) -> None:
        """Count stalls from now on."""
        self._last_at = self._clock()

    @property
    def complete(self) -> bool:
        """Whether every byte of every flow has arrived."""
        return not any(self._left.values())

    def arrived(self, flow: int, *, block: int, at: int, data: memoryview) -> bool:
        """Take `data`, which lies at `at` in a block; return whether the flow is complete.

        Raises WorkloadError for a byte that is not the one that was sent, and for one that no flow has.
        """
        wrong = self._source.difference(self._source.offset(flow + block) + at, np.frombuffer(data, np.uint8))
        if wrong is not None:
            raise WorkloadError(f"flow {flow}: byte {at + wrong} of block {block} is not what was sent")
        if not flow:
            return True
        left = self._left.get(flow, 0) - len(data)
        if left < 0:
            raise WorkloadError(f"flow {flow}: more bytes have arrived than it has")
        self._left[flow] = left
        self.size_bytes += len(data)
        now = self._clock()
        if self._last_at is not None:
            self.longest_stall_s = max(self.longest_stall_s, now - self._last_at)
        self._last_at = now
        return left == 0

    def stop(self) -> None:
        """Count the time since the last byte if one is missing."""
        if self._last_at is not None and not self.complete:
            self.longest_stall_s = max(self.longest_stall_s, self._clock() - self._last_at)


@dataclass(frozen=True, slots=True)
class Account:
    """What a carrier has sent."""

    sent: int
    """Packets (SRD) or bytes (TCP)."""

    resent: int
    """Of these, those that had been sent before."""

    subflows: int | None = None
    """MPTCP: the fewest subflows of a connection."""


class Carrier(Protocol):
    """Carries flows."""

    async def listen(self, address: str) -> int:
        """Receive flows at `address` from now on; return the port."""

    async def connect(self, targets: Mapping[Address, int]) -> None:
        """Open what flows to these need, given their number, and move a byte over it."""

    async def send(self, flow: Flow) -> None:
        """Send a flow; return when the receiver has confirmed it. Raises SrdError."""

    async def failed(self) -> None:
        """Raise the first error of receiving; return never."""

    def account(self) -> Account:
        """Return what was sent so far."""

    async def close(self) -> None:
        """End everything at once."""
