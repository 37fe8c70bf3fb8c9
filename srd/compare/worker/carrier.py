"""What carries flows: the interface, and the tasks that it runs until it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from srd.compare.worker.plan import Address, PlannedFlow
from srd.perf.running import Failure


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
        """Open what flows to these need, given their number, and move a byte over it; nothing for a file."""

    async def send(self, flow: PlannedFlow) -> None:
        """Send a flow; return when the receiver has confirmed it. Raises SrdError."""

    async def failed(self) -> None:
        """Raise the first error of receiving; return never."""

    def account(self) -> Account:
        """Return what was sent so far."""

    async def close(self) -> None:
        """End everything at once."""


class Background:
    """Tasks of a carrier that run until it is closed; the first error of any ends the workload."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure = Failure()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work`."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """End the workload."""
        self._failure.set(error)

    async def failed(self) -> None:
        """Raise the first error."""
        await self._failure.wait()

    async def close(self) -> None:
        """End all tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._failure.close()
