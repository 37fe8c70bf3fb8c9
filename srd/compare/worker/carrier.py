"""What carries flows: the interface, and the tasks that it runs until it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from srd.compare.worker.plan import Address, PlannedFlow


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
        self._error: asyncio.Future[None] | None = None

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work`."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._future().done():
            self._future().set_exception(error)

    def _future(self) -> asyncio.Future[None]:
        if self._error is None:
            self._error = asyncio.get_running_loop().create_future()
        return self._error

    async def failed(self) -> None:
        """Raise the first error."""
        await asyncio.shield(self._future())

    async def close(self) -> None:
        """End all tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._error is not None and self._error.done() and not self._error.cancelled():
            self._error.exception()
