"""Registrations: the parts of regions that peers may read and write, under keys that cannot be guessed.

1. A registration is a range of a region, access rights, and two random 64-bit keys (lkey and rkey). The application
   sends the remote key, in a message, to the peers that shall have the remote rights.
2. It names these peers (by number, which is never used again). The key is of no use to any other, whoever has learned
   it: as with the protection domains of InfiniBand, but for single peers.
3. The rights are InfiniBand's (`ibv_access_flags`), with its rule that REMOTE_WRITE requires LOCAL_WRITE. Reading local
   memory needs no right. Memory that is mapped read-only cannot be registered for writing.
4. A registration keeps its region mapped: `Region.close` raises while the registration exists.

A lookup returns an address in this process. It checks the key, the peer and the bounds each time, so a withdrawn key
stops working at once.
"""

from __future__ import annotations

import secrets
from collections.abc import Container
from enum import IntFlag

from devmem.errors import RegistrationError
from devmem.region import Region


class Access(IntFlag):
    """Rights; the numbers are those of `ibv_access_flags`."""

    LOCAL_WRITE = 1
    """Reads that this end issues may land here."""
    REMOTE_WRITE = 2
    REMOTE_READ = 4


class Registration:
    """A registered range, made by `Registry.register`.

    A peer uses `remote_key`, with offsets from the beginning of the range; local reads use `local_key`.
    """

    __slots__ = ("_view", "access", "length", "local_key", "offset", "peers", "region", "remote_key")

    def __init__(
        self,
        region: Region,
        *,
        offset: int,
        length: int,
        access: Access,
        peers: frozenset[int] | None,
        local_key: int,
        remote_key: int,
    ) -> None:
        self._view: memoryview | None = region.view(offset, length=length)  # keeps the region from being closed
        self.region = region
        self.offset = offset
        self.length = length
        self.access = access
        self.peers = peers
        self.local_key = local_key
        self.remote_key = remote_key

    def __repr__(self) -> str:
        """Return a description without the keys, which are secrets."""
        return f"<Registration of {self.length} bytes at {self.offset}, {self.access!r}>"

    def release(self) -> None:
        """Release the region. For `Registry.deregister`."""
        if self._view is not None:
            self._view.release()
            self._view = None


class Registry:
    """All registrations of one endpoint."""

    def __init__(self) -> None:
        self._by_local_key: dict[int, Registration] = {}
        self._by_remote_key: dict[int, Registration] = {}

    def __len__(self) -> int:
        """Return the number of registrations."""
        return len(self._by_remote_key)

    def register(
        self,
        region: Region,
        *,
        offset: int,
        length: int,
        access: Access,
        peers: frozenset[int] | None = frozenset(),
    ) -> Registration:
        """Register `length` bytes of `region` from `offset`, and allocate their memory.

        `peers`: numbers of those that have the remote rights; None: all. Raises RegionError for a range out of bounds
        or lack of memory, RegistrationError for invalid rights.
        """
        if Access.REMOTE_WRITE in access and Access.LOCAL_WRITE not in access:
            raise RegistrationError("access: REMOTE_WRITE needs LOCAL_WRITE too; add it")
        if access & (Access.LOCAL_WRITE | Access.REMOTE_WRITE) and not region.writable:
            raise RegistrationError(f"access: {access!r} of a region that is mapped read-only; map it writable")
        if access & (Access.REMOTE_READ | Access.REMOTE_WRITE) and peers is not None and not peers:
            raise RegistrationError(f"peers: {access!r} is for nobody; name the peers, or None for all")
        registration = Registration(
            region,
            offset=offset,
            length=length,
            access=access,
            peers=peers,
            local_key=_new_key(self._by_local_key),
            remote_key=_new_key(self._by_remote_key),
        )
        if length:
            region.populate(offset, length=length)  # as RDMA pins memory: page faults would stall the receiver
        self._by_local_key[registration.local_key] = self._by_remote_key[registration.remote_key] = registration
        return registration

    def deregister(self, registration: Registration) -> None:
        """Withdraw a registration. Raises RegistrationError if it is not (or no longer) registered here."""
        if self._by_remote_key.get(registration.remote_key) is not registration:
            raise RegistrationError(f"{registration!r} is not registered here; once is enough")
        del self._by_remote_key[registration.remote_key], self._by_local_key[registration.local_key]
        registration.release()

    def renew_key(self, registration: Registration) -> None:
        """Give a registration another remote key. Raises RegistrationError if it is not registered here."""
        if self._by_remote_key.get(registration.remote_key) is not registration:
            raise RegistrationError(f"{registration!r} is not registered here; register the memory again")
        del self._by_remote_key[registration.remote_key]
        registration.remote_key = _new_key(self._by_remote_key)
        self._by_remote_key[registration.remote_key] = registration

    def close(self) -> None:
        """Withdraw all registrations."""
        for registration in list(self._by_remote_key.values()):
            self.deregister(registration)

    # -- lookups by the transport -----------------------------------------------------------------------------------

    def local_writable(self, key: int, *, offset: int, length: int) -> int | None:
        """Return the address where a local read may land; None if it is not allowed."""
        return _place(self._by_local_key.get(key), Access.LOCAL_WRITE, offset=offset, length=length)

    def remote_readable(self, key: int, *, peer: int, offset: int, length: int) -> int | None:
        """Return the address of a range that a peer wants to read; None if it is not allowed."""
        return _place(self._of_peer(key, peer), Access.REMOTE_READ, offset=offset, length=length)

    def remote_writable(self, key: int, *, peer: int, offset: int, length: int) -> int | None:
        """Return the address of a range that a peer wants to write; None if it is not allowed."""
        return _place(self._of_peer(key, peer), Access.REMOTE_WRITE, offset=offset, length=length)

    def _of_peer(self, key: int, peer: int) -> Registration | None:
        found = self._by_remote_key.get(key)
        return found if found is not None and (found.peers is None or peer in found.peers) else None


def _new_key(taken: Container[int]) -> int:
    key = 0
    while key == 0 or key in taken:
        key = secrets.randbits(64)
    return key


def _place(found: Registration | None, right: Access, *, offset: int, length: int) -> int | None:
    if found is None or right not in found.access:
        return None
    if offset < 0 or length < 0 or offset + length > found.length:
        return None
    return found.region.address + found.offset + offset
