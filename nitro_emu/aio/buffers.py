"""The memory of a queue pair: buffers that messages are received in, and slots that bytes are sent from.

One registered region has both: receive buffers first, then send slots, all of one size.
"""

from __future__ import annotations

from typing import Final

from devmem.region import Region
from nitro_emu.verbs import Access, MemoryRegion, ProtectionDomain, Sge

ALIGNMENT_BYTES: Final = 64
"""Of a buffer: a cache line."""


class Buffers:
    """See the module. Blocking; made and closed in a thread."""

    def __init__(self, pd: ProtectionDomain, *, receives: int, sends: int, buffer_bytes: int) -> None:
        """Allocate and register the memory. Raises VerbsError and RegionError."""
        self.buffer_bytes = buffer_bytes
        self._step_bytes = -(-buffer_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self._receives = receives
        region = Region((receives + sends) * self._step_bytes, name="nitro-aio")
        self._registration = MemoryRegion(pd, region, access=Access.LOCAL_WRITE)
        self._view: memoryview | None = memoryview(region)
        self._free = [*range(sends)]

    @property
    def has_slot(self) -> bool:
        """Whether a send slot is free."""
        return bool(self._free)

    def receive_sge(self, index: int) -> Sge:
        """Return a receive buffer, to be posted."""
        address = self._registration.address + index * self._step_bytes
        return Sge(address, self.buffer_bytes, self._registration.lkey)

    def received(self, index: int, *, length: int) -> memoryview:
        """Return what has been received in a buffer."""
        return self._at(index, length=min(length, self.buffer_bytes))

    def fill(self, payload: memoryview) -> tuple[int, Sge]:
        """Copy bytes to a free send slot; return its number and where they lie."""
        slot = self._free.pop()
        index = self._receives + slot
        self._at(index, length=len(payload))[:] = payload
        address = self._registration.address + index * self._step_bytes
        return slot, Sge(address, len(payload), self._registration.lkey)

    def give_back(self, slot: int) -> None:
        """Free a send slot."""
        self._free.append(slot)

    def _at(self, index: int, *, length: int) -> memoryview:
        if self._view is None:
            return memoryview(b"")
        start = index * self._step_bytes
        return self._view[start : start + length]

    def close(self) -> None:
        """End the registration. The memory is freed when no message is left that lies in it."""
        self._view = None
        self._registration.close()
