"""The receiving side of long messages: a window, and which of its slots hold what."""

from __future__ import annotations

import asyncio
from typing import Self

from devmem.region import Region
from nitro_emu.aio import Access, Device, Memory
from nitro_emu.messages.layouts import MessageError, Window, Written


class ReceiveWindow:
    """Memory that the other end writes long messages to. What it says of them is checked.

    A message is complete when both its WRITE and its WRITTEN have arrived, in any order. Its slot is the other end's
    again when this end has released it. Nothing keeps a hostile other end from writing to it before that, so that a
    message is copied before it is delivered: what is checked is then what is used.
    """

    def __init__(self, memory: Memory, *, slots: int, slot_bytes: int, packet_bytes: int) -> None:
        self.window = Window(memory.rkey, memory.address, slots, slot_bytes, packet_bytes)
        self._memory = memory
        self._view: memoryview | None = memory.view(0, length=memory.length)
        self._written: dict[int, Written] = {}  # described, not landed yet
        self._landed: dict[int, int] = {}  # lengths, not described yet
        self._held: set[int] = set()  # delivered, not released yet
        self._copies: dict[int, bytearray] = {}  # of the slots, made when they are first needed

    @classmethod
    async def create(cls, device: Device, *, slots: int, slot_bytes: int) -> Self:
        """Allocate and register it. Raises VerbsError and RegionError."""
        region = Region(slots * slot_bytes, name="nitro-window")
        access = Access.LOCAL_WRITE | Access.REMOTE_WRITE
        memory = await device.register(region, length=slots * slot_bytes, access=access)
        return cls(memory, slots=slots, slot_bytes=slot_bytes, packet_bytes=device.mtu_bytes)

    def on_landed(self, slot: int, *, length: int) -> Written | None:
        """Note that a WRITE has landed; return its message if that is complete. Raises MessageError."""
        self._check(slot, is_taken=slot in self._landed, length=length)
        written = self._written.pop(slot, None)
        if written is None:
            self._landed[slot] = length
            return None
        return self._complete(written, landed=length)

    def on_written(self, written: Written) -> Written | None:
        """Note the description of a message; return it if it is complete. Raises MessageError."""
        self._check(written.slot, is_taken=written.slot in self._written, length=written.length)
        landed = self._landed.pop(written.slot, None)
        if landed is None:
            self._written[written.slot] = written
            return None
        return self._complete(written, landed=landed)

    def _check(self, slot: int, *, is_taken: bool, length: int) -> None:
        if not 0 <= slot < self.window.slots or length > self.window.slot_bytes:
            raise MessageError(f"{length} bytes in slot {slot}, which the window does not have")
        if is_taken or slot in self._held:
            raise MessageError(f"a message in slot {slot}, which is in use")

    def _complete(self, written: Written, *, landed: int) -> Written:
        if landed != written.length:
            raise MessageError(f"a message of {written.length} bytes, of which {landed} were written")
        self._held.add(written.slot)
        return written

    def copy_of(self, written: Written) -> memoryview:
        """Return a private copy of a complete message, which is overwritten after the release of its slot."""
        if self._view is None:
            return memoryview(b"")
        start = written.slot * self.window.slot_bytes
        copy = self._copies.get(written.slot)
        if copy is None:
            copy = self._copies[written.slot] = bytearray(self.window.slot_bytes)
        view = memoryview(copy)[: written.length]
        view[:] = self._view[start : start + written.length]
        return view

    def release(self, slot: int) -> None:
        """Note that a message was released."""
        self._held.discard(slot)

    async def close(self) -> None:
        """Let nothing be written any more, and free the memory. Raises VerbsError."""
        self._view = None
        await asyncio.shield(self._memory.close())
