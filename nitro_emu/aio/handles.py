"""Address handles, shared by all destinations at one device."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from nitro_emu.abi.io import UNKNOWN_AH
from nitro_emu.aio.address import QpAddress
from nitro_emu.verbs import AddressHandle, ProtectionDomain


@dataclass(slots=True, eq=False)
class _Entry:
    handle: AddressHandle
    users: int = 0


class Remote:
    """A queue pair to send to. Made by `Device.remote`."""

    __slots__ = ("_entry", "_handles", "address")

    def __init__(self, address: QpAddress, entry: _Entry, handles: Handles) -> None:
        self.address = address
        self._entry: _Entry | None = entry
        self._handles = handles
        entry.users += 1

    @property
    def handle(self) -> AddressHandle | None:
        """Its address handle; None once it is closed."""
        return None if self._entry is None else self._entry.handle

    async def close(self) -> None:
        """Give up the address handle. If nothing else uses it, open requests to its device end with FLUSHED."""
        entry, self._entry = self._entry, None
        if entry is not None:
            entry.users -= 1
            await self._handles.destroy_unused(self.address.gid)


class Handles:
    """One address handle a GID, made for its first user and destroyed with its last."""

    def __init__(self, pd: ProtectionDomain) -> None:
        self._pd = pd
        self._entries: dict[bytes, _Entry] = {}
        # Also of handles that are destroyed: completions that name them wait, and the card uses a number of 16 bits
        # again as late as possible.
        self._gids: dict[int, bytes] = {}
        self._making: bytes | None = None  # its number is in completions before this loop knows it
        self._lock = asyncio.Lock()  # so that one for the same GID is not made while the last is destroyed

    def gid_of(self, number: int) -> bytes | None:
        """Return the GID that an address handle is, or was, for; None if there was no such handle."""
        making = self._making if number != UNKNOWN_AH else None
        return self._gids.get(number, making)

    async def remote(self, address: QpAddress) -> Remote:
        """Return a destination. Raises VerbsError."""
        gid = address.gid
        async with self._lock:
            entry = self._entries.get(gid)
            if entry is None:
                self._making = gid
                try:
                    entry = _Entry(await asyncio.to_thread(AddressHandle, self._pd, gid=gid))
                    self._entries[gid], self._gids[entry.handle.number] = entry, gid
                finally:
                    self._making = None
            return Remote(address, entry, self)

    async def destroy_unused(self, gid: bytes) -> None:
        """Destroy the handle for a GID if it has no user. Raises VerbsError."""
        async with self._lock:
            entry = self._entries.get(gid)
            if entry is None or entry.users:
                return
            del self._entries[gid]
            await asyncio.to_thread(entry.handle.close)
