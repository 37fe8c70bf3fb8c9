"""What carries flows, with the tasks that it runs until it is closed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

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


class FlowCarrier(ABC):
    """Carries flows. The first error of its tasks ends the workload."""

    def __init__(self) -> None:
        self._failure = FirstFailure()
        self._tasks = Tasks(self._failure.set)

    @abstractmethod
    async def listen(self, address: str) -> int:
        """Receive flows at `address` from now on; return the port."""

    @abstractmethod
    async def connect(self, targets: Mapping[Address, int]) -> None:
        """Open what flows to these need, given their number, and move a byte over it; nothing for a file."""

    @abstractmethod
    async def send(self, flow: PlannedFlow) -> None:
        """Send a flow; return when the receiver has confirmed it. Raises SrdError."""

    @abstractmethod
    def account(self) -> Account:
        """Return what was sent so far."""

    async def failed(self) -> None:
        """Raise the first error of receiving; return never."""
        await self._failure.wait()

    async def close(self) -> None:
        """End everything at once."""
        await self._tasks.end()
        self._failure.close()
