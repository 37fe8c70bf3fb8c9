"""Memory of requests: slots of two sizes, each registered with a key of its own, for what servers write.

A slot whose key was told gets another one when it is given back: what a server still writes with the old one, as it
answers late or lies, is refused, so that it alters no other request's data. Before the data of a slot there is room for
a command, so that both are sent as one message, from where they lie.
"""

from __future__ import annotations

import asyncio
from typing import Final

from devmem import Access, Region
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
        self.view = slots.region.view(offset, length=slots.slot_bytes)
        self._head = slots.region.view(offset - COMMAND_BYTES, length=COMMAND_BYTES)
        self._address = slots.region.address + offset - COMMAND_BYTES
        self._registration = slots.endpoint.register(
            slots.region, offset=offset, length=slots.slot_bytes, access=_RIGHTS, peers=None
        )
        self._is_told = False

    @property
    def key(self) -> int:
        """What a server names to reach it; offsets are from its beginning."""
        self._is_told = True
        return self._registration.remote_key

    def message(self, capsule: bytes) -> int:
        """Put a command before the data; return the address of both."""
        self._head[:] = capsule
        return self._address

    def release(self) -> None:
        """Let go of the memory."""
        self.view.release()
        self._head.release()

    def give_back(self) -> None:
        """Return it; nobody knows its key from now on."""
        if self._is_told:
            self._slots.endpoint.renew_key(self._registration)
            self._is_told = False
        self._slots.free.append(self)
        self._slots.count.release()


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
