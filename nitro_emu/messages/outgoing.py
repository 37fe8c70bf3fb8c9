"""Messages that are being sent."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from devmem.region import Region
from srd.proto.wire.status import Status


@dataclass(slots=True, eq=False)
class Outgoing:
    """One message. `view` keeps its region from being closed while it waits for a slot."""

    future: asyncio.Future[Status]
    region: Region
    offset: int
    length: int
    immediate: int | None
    posted_at: float
    view: memoryview
    left: int = 0
    """Requests of it that have not completed."""

    def end(self, status: Status) -> None:
        """Set the result, and let go of the memory."""
        self.view.release()
        if not self.future.done():
            self.future.set_result(status)
