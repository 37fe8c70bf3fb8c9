"""How much a volume carries: io2's I/O operations and bytes a second, each as a token bucket.

A request that finds no tokens waits, in the order of arrival, and is never refused. Operations are counted as io2
counts them: 256 KiB are one, what is longer is several (AWS, "Amazon EBS I/O characteristics"). The counters are those
of "Amazon EBS detailed performance statistics": for how long the demand was above what the volume is provisioned for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from netns.base.token_bucket import TokenBucket

OPERATION_BYTES: Final = 256 << 10
"""The longest request that counts as one operation of an SSD volume."""

BYTES_PER_OPERATION: Final = 256 << 10
"""io2's throughput for each provisioned operation a second: 0.256 MiB/s by AWS's table, which is 256 KiB rounded."""

MAX_BYTES_PER_S: Final = 4000 << 20
"""io2 Block Express's limit."""
MAX_IOPS: Final = 256_000
"""Likewise."""

EXCEEDED: Final = ("performance_exceeded_iops", "performance_exceeded_tp")
"""AWS's names of the counters: operations, throughput."""

DEPTH_S: Final = 0.05
"""Of the buckets: io2 has no burst, but requests come in bunches, and timers are coarse."""


@dataclass(frozen=True, slots=True)
class Provisioned:
    """What a volume is provisioned for; None: no limit."""

    iops: int | None = None
    bytes_per_s: int | None = None

    @classmethod
    def io2(cls, iops: int | None, bytes_per_s: int | None) -> Provisioned:
        """Return the limits of an io2 volume: without one of bytes, what comes with its operations."""
        if iops is not None and bytes_per_s is None:
            bytes_per_s = min(iops * BYTES_PER_OPERATION, MAX_BYTES_PER_S)
        return cls(iops=iops, bytes_per_s=bytes_per_s)


class _Limit:
    """One bucket, and for how long it was empty."""

    def __init__(self, per_s: int) -> None:
        self._bucket = TokenBucket(per_s, depth_s=DEPTH_S)
        self._exceeded_until = 0.0
        self.exceeded_s = 0.0

    def charge(self, tokens: int, *, now: float) -> float:
        """Take tokens; return how long the request waits."""
        self._bucket.charge(tokens, now=now)
        delay_s = self._bucket.delay_s(now)
        if delay_s:
            self.exceeded_s += now + delay_s - max(now, self._exceeded_until)
            self._exceeded_until = now + delay_s
        return delay_s


class Limits:
    """Holds requests back to what a volume is provisioned for."""

    def __init__(
        self,
        provisioned: Provisioned,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`clock`, `sleep`: seconds."""
        self.provisioned = provisioned
        self._clock = clock
        self._sleep = sleep
        self._operations = None if provisioned.iops is None else _Limit(provisioned.iops)
        self._bytes = None if provisioned.bytes_per_s is None else _Limit(provisioned.bytes_per_s)

    async def admit(self, length_bytes: int) -> None:
        """Return when a request of this length may be issued."""
        now, delay_s = self._clock(), 0.0
        if self._operations is not None:
            delay_s = self._operations.charge(max(-(-length_bytes // OPERATION_BYTES), 1), now=now)
        if self._bytes is not None and length_bytes:
            delay_s = max(delay_s, self._bytes.charge(length_bytes, now=now))
        if delay_s:
            await self._sleep(delay_s)

    def exceeded_us(self) -> dict[str, int]:
        """Return for how long the demand was above each limit, in microseconds, by AWS's names."""
        limits = (self._operations, self._bytes)
        return {
            name: 0 if limit is None else int(limit.exceeded_s * 1e6)
            for name, limit in zip(EXCEEDED, limits, strict=True)
        }
