"""What carries flows: the interface, and the tasks that it runs until it is closed."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from netns.base.tasks import Tasks
from srd.compare.worker.plan import Address, PlannedFlow
from srd.perf.running import FirstFailure


@dataclass(frozen=True, slots=True)
class Account:
    """What a carrier has sent."""

    sent: int
    """Packets (SRD) or bytes (TCP)."""

    resent: int
    """Of these, those that had been sent before."""

    subflows: int | None = None
    """MPTCP: the fewest subflows of a connection."""


class FlowCarrier(Protocol):
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
        self._failure = FirstFailure()
        self._tasks = Tasks(self.fail)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work`."""
        self._tasks.start(work)

    def fail(self, error: BaseException) -> None:
        """End the workload."""
        self._failure.set(error)

    async def failed(self) -> None:
        """Raise the first error."""
        await self._failure.wait()

    async def close(self) -> None:
        """End all tasks."""
        await self._tasks.end()
        self._failure.close()
