"""Requests of a queue pair, from the call to the completion."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from nitro_emu.aio.handles import Remote
from nitro_emu.aio.memory import Slice
from nitro_emu.verbs import SendOp
from srd.proto.wire.status import Status

Payload = Slice | bytes | bytearray | memoryview
"""Registered memory, which is sent in place, or other bytes, which are copied."""

_STATUSES: Final = {int(status): status for status in Status}


def status_of_untrusted(number: int) -> Status:
    """Return the status for a device's number; REMOTE_ERROR_BAD_STATUS for one that does not exist."""
    return _STATUSES.get(number, Status.REMOTE_ERROR_BAD_STATUS)


@dataclass(slots=True, eq=False)
class Request:
    """One request. `view` keeps its memory from being unmapped until it has completed."""

    future: asyncio.Future[Status]
    op: SendOp
    to: Remote
    payload: Slice | memoryview
    """As the caller gave it."""
    view: memoryview
    immediate: int | None = None
    rkey: int = 0
    remote_address: int = 0
    slot: int | None = None
    """The send slot that it was copied to."""

    def release_memory(self) -> None:
        """Let go of the caller's memory."""
        self.view.release()

    def end(self, status: Status) -> None:
        """Set the result, and let go of the memory."""
        self.release_memory()
        if not self.future.done():
            self.future.set_result(status)
