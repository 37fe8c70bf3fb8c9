"""What has arrived at a host: verified, counted, and for how long next to nothing did."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from srd.compare.worker.stalls import Stalls
from srd.errors import SrdError
from srd.perf.payload import PayloadSource


class WorkloadError(SrdError):
    """A workload cannot go on; one line for the user."""


class Arrivals:
    """The flows that this host receives."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left: dict[int, int] = {}
        self._stalls = Stalls()
        self.size_bytes = 0
        """Of all flows, the byte that tries a connection excepted."""

    def expect(self, arriving: Mapping[int, int]) -> None:
        """Set what is to come."""
        self._left = dict(arriving)

    def start(self) -> None:
        """Count stalls from now on."""
        self._stalls.start(self._clock())

    @property
    def complete(self) -> bool:
        """Whether every byte of every flow has arrived."""
        return not any(self._left.values())

    def left_bytes(self, flow: int) -> int:
        """Return what is missing of a flow."""
        return self._left.get(flow, 0)

    def arrived(self, flow: int, *, block: int, at: int, data: memoryview) -> bool:
        """Take `data`, which lies at `at` in a block; return whether the flow is complete.

        Raises WorkloadError for a byte that is not the one that was sent, and for one that no flow has.
        """
        raise NotImplementedError

    def count(self, flow: int, size_bytes: int) -> bool:
        """Note that so much of a flow is here; return whether it is complete. Raises WorkloadError for more."""
        left = self.left_bytes(flow) - size_bytes
        if left < 0:
            raise WorkloadError(f"flow {flow}: more bytes have arrived than it has")
        self._left[flow] = left
        self.size_bytes += size_bytes
        self._stalls.arrived(size_bytes, at=self._clock())
        return left == 0

    def longest_stall_s(self) -> float:
        """Return the longest stall until the last byte, or until now if one is missing (see `stalls`)."""
        return self._stalls.longest_s(until=None if self.complete else self._clock())


class BlockArrivals(Arrivals):
    """Flows of the source's blocks."""

    def __init__(self, source: PayloadSource, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock=clock)
        self._source = source

    def arrived(self, flow: int, *, block: int, at: int, data: memoryview) -> bool:
        """Compare it."""
        wrong = self._source.difference(self._source.offset(flow + block) + at, np.frombuffer(data, np.uint8))
        if wrong is not None:
            raise WorkloadError(f"flow {flow}: byte {at + wrong} of block {block} is not what was sent")
        return self.count(flow, len(data)) if flow else True


@dataclass(frozen=True, slots=True)
class Copy:
    """A file that is to be copied from one host to another: the only flow of its workload."""

    source: Path
    into: Path
    """A directory."""
    sha256: str
    """In hex."""


class FileArrivals(Arrivals):
    """A file that arrives in order."""

    def __init__(self, copy: Copy, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock=clock)
        self._copy = copy
        self._path = copy.into / copy.source.name
        self._file: BinaryIO | None = None
        self._digest = hashlib.sha256()

    def start(self) -> None:
        """Count stalls from the first byte on."""

    def arrived(self, flow: int, *, block: int, at: int, data: memoryview) -> bool:  # noqa: ARG002 - in order
        """Write it."""
        try:
            if self._file is None:
                self._file = self._path.open("wb", buffering=0)
            self._file.write(data)
        except OSError as error:
            raise WorkloadError(f"{self._path}: {error.strerror}") from None
        self._digest.update(data)
        complete = self.count(flow, len(data))
        if complete and self._digest.hexdigest() != self._copy.sha256:
            raise WorkloadError(f"{self._path}: its SHA-256 is {self._digest.hexdigest()}, and not {self._copy.sha256}")
        return complete
