"""Memory of requests: slots of two sizes, each registered with a key of its own, for what servers write.

A slot that a server may still write to, since it has not answered, gets another key: what that server still writes with
the old one is refused, so that one request never sees another one's data. Before the data of a slot there is room for
a command, so that both are sent as one message, from where they lie.
"""

from __future__ import annotations

import asyncio
from typing import Final

from devmem import Access, Region, Registration
from nitro_emu.ebs.capsule import COMMAND_BYTES, MAX_IO_BYTES
from nitro_emu.ebs.link import URGENT_BYTES
from srd import Endpoint

SMALL_BYTES: Final = 64 << 10
SMALL_SLOTS: Final = 256
"""Half of them are the writes of 0.2 s, at 600 a second, that wait for a server which has stopped."""
URGENT_SLOTS: Final = 48
"""What is compared at once, of three replicas."""
LARGE_SLOTS: Final = 16
"""What fills 10 Gbit/s at a round trip of 10 ms."""

_RIGHTS: Final = Access.LOCAL_WRITE | Access.REMOTE_WRITE
_HEAD_BYTES: Final = 128
"""Before the data, so that this is at a cache line's beginning: room for COMMAND_BYTES."""


class BufferSlot:
    """A buffer; see `nitro_emu.ebs.link.Buffer`."""

    def __init__(self, slots: _Slots, offset: int) -> None:
        self._slots = slots
        self.offset = offset
        self.view = slots.region.view(offset, length=slots.slot_bytes)
        self._head = slots.region.view(offset - COMMAND_BYTES, length=COMMAND_BYTES)
        self._address = slots.region.address + offset - COMMAND_BYTES
        self._registration = self._register()

    @property
    def key(self) -> int:
        """What a server names to reach it; offsets are from its beginning."""
        return self._registration.remote_key

    def message(self, capsule: bytes) -> int:
        """Put a command before the data; return the address of both."""
        self._head[:] = capsule
        return self._address

    def release(self) -> None:
        """Let go of the memory."""
        self.view.release()
        self._head.release()

    def give_back(self, *, is_quiet: bool) -> None:
        """Return it. Unless it `is_quiet`, it has another key from now on."""
        if not is_quiet:
            self._slots.endpoint.deregister(self._registration)
            self._registration = self._register()
        self._slots.free.append(self)
        self._slots.count.release()

    def _register(self) -> Registration:
        return self._slots.endpoint.register(
            self._slots.region, offset=self.offset, length=self._slots.slot_bytes, access=_RIGHTS, peers=None
        )


class _Slots:
    """Slots of one size."""

    def __init__(self, endpoint: Endpoint, *, slot_bytes: int, count: int) -> None:
        self.endpoint = endpoint
        self.slot_bytes = slot_bytes
        step_bytes = _HEAD_BYTES + slot_bytes
        self.region = Region(step_bytes * count)
        self.free = [BufferSlot(self, at * step_bytes + _HEAD_BYTES) for at in range(count)]
        self.count = asyncio.Semaphore(count)
        self._all = tuple(self.free)

    async def take(self) -> BufferSlot:
        await self.count.acquire()
        return self.free.pop()

    def close(self) -> None:
        """Unmap it; after the endpoint was closed."""
        for slot in self._all:
            slot.release()
        self.region.close()


class LinkMemory:
    """The registered memory of one endpoint that only connects; see `nitro_emu.ebs.link.BufferMemory`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._small = _Slots(endpoint, slot_bytes=SMALL_BYTES, count=SMALL_SLOTS)
        self._large = _Slots(endpoint, slot_bytes=MAX_IO_BYTES, count=LARGE_SLOTS)
        self._urgent = _Slots(endpoint, slot_bytes=URGENT_BYTES, count=URGENT_SLOTS)

    @property
    def is_short(self) -> bool:
        """Whether most of it is in use."""
        return len(self._small.free) < SMALL_SLOTS // 2 or len(self._large.free) < LARGE_SLOTS // 2

    async def take(self, length_bytes: int) -> BufferSlot:
        """Return a slot, once there is one."""
        return await (self._small if length_bytes <= SMALL_BYTES else self._large).take()

    async def take_urgent(self) -> BufferSlot:
        """Return a slot of URGENT_BYTES, for what requests may wait for."""
        return await self._urgent.take()

    def close(self) -> None:
        """Unmap it; after the endpoint was closed."""
        for slots in (self._small, self._large, self._urgent):
            slots.close()
