"""Tensors in registered memory, which the other ranks of a group write to where they lie.

1. `empty` makes a tensor over a `devmem.Region` of its own. The region lives as long as the tensor's memory does.
2. What a rank receives into such a tensor, and does not reduce, is written there by RDMA write: the grant of the
   transfer has the key of the region and the place in it. A region is registered with a group's endpoint when the group
   first receives into it, for the ranks of this group, and withdrawn with the tensor, or when the group ends.
3. A write is one request however long it is, needs no place in the receive region, and this package copies nothing.
   The transport does, once, from where the packets landed (docs/devmem.md).
"""

from __future__ import annotations

import bisect
import struct
import threading
import weakref
from typing import Any, Final

import torch

from devmem import Access, Region, Registration
from srd import Endpoint, Peer
from srd.torch.loop import loop_thread
from srd.torch.memory import Block

TARGET: Final = struct.Struct("!QQ")  # a key, or 0; the offset from the beginning of its registration

_lock = threading.Lock()
_starts: list[int] = []  # addresses of all regions, in order; replaced, so that the loop's thread needs no lock
_regions: dict[int, Region] = {}  # by address


def empty(*size: Any, dtype: Any = None) -> Any:
    """Return a tensor as `torch.empty` does, in registered memory. For few and large ones: each has pages of its own.

    Raises devmem.RegionError when the memory cannot be had.
    """
    shape = torch.Size(size[0] if len(size) == 1 and not isinstance(size[0], int) else size)
    kind = dtype or torch.get_default_dtype()
    length = shape.numel() * kind.itemsize
    if not length:
        return torch.empty(shape, dtype=kind)
    region = Region(length, name="srd-tensor")
    memory = region.view(0, length=length)  # which the tensor keeps
    with _lock:
        _regions[region.address] = region
        _sort()
    weakref.finalize(memory, _forget, region.address).atexit = False
    return torch.frombuffer(memory, dtype=kind).reshape(shape)


def _sort() -> None:
    global _starts  # noqa: PLW0603 - one for each process
    _starts = sorted(_regions)


def _forget(address: int) -> None:
    """Let go of a region whose tensor is gone; in whatever thread that is noticed."""
    with _lock:
        del _regions[address]
        _sort()
        users = list(_users)
    for each in users:
        loop_thread().loop.call_soon_threadsafe(each.withdraw, address)


class Registrations:
    """The regions that one group's endpoint has registered. Used on the loop's thread alone."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._by_address: dict[int, Registration] = {}
        self._is_over = False
        with _lock:
            _users.add(self)

    def target(self, block: Block, *, peers: list[Peer]) -> bytes:
        """Return where another rank is to write what this one receives; empty: it is to send it."""
        index = bisect.bisect_right(_starts, block.address) - 1
        if index < 0 or self._is_over:
            return b""
        address = _starts[index]
        region = _regions.get(address)
        if region is None or block.address + block.length > address + region.size_bytes:
            return b""
        registration = self._by_address.get(address)
        if registration is None:
            rights = Access.LOCAL_WRITE | Access.REMOTE_WRITE
            registration = self._endpoint.register(
                region, offset=0, length=region.size_bytes, access=rights, peers=peers
            )
            self._by_address[address] = registration
        return TARGET.pack(registration.remote_key, block.address - address)

    def withdraw(self, address: int) -> None:
        """Forget a region that is in use no more."""
        if (registration := self._by_address.pop(address, None)) is not None:
            self._endpoint.deregister(registration)

    def withdraw_all(self) -> None:
        """Let nobody write any more: what an error has ended must not change a tensor later."""
        self._is_over = True
        for address in list(self._by_address):
            self.withdraw(address)


_users: weakref.WeakSet[Registrations] = weakref.WeakSet()
