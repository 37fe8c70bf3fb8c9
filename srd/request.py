"""The future of a posted request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from srd.proto.wire.status import Status


class Request(asyncio.Future[Status]):
    """Its result is the status that the request ended with. Cancelling it ends the request.

    A class of its own rather than a callback of a future: that is called for every request, by the event loop.
    """

    __slots__ = ("number", "on_cancelled", "view")

    number: int
    view: memoryview | None
    """Keeps the memory that is sent, and its region open, until the request has ended."""
    on_cancelled: Callable[[int], None]
    """Called with the number when it is cancelled, before `cancel` returns."""

    def cancel(self, msg: Any | None = None) -> bool:
        """End the request with FLUSHED, unless it has ended; return whether it had not."""
        if not super().cancel(msg):
            return False
        self.on_cancelled(self.number)
        return True
