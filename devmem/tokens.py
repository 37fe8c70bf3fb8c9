"""Tokens: the receipts for received pieces, by which an application returns them one by one, as with Device Memory TCP.

1. `issue` hands out a frag: where it lies, in which region, and a token. Tokens of one endpoint count up from a random
   number, so that another endpoint's means nothing here; pieces handed out together have consecutive ones.
2. `dontneed` takes ranges of tokens with the kernel's limits (`uapi`): it returns how many frags were freed, and skips
   what is unknown (returned before, another endpoint's). `return_token` takes one token, and complains.
3. `refill` takes what was put into a refill ring: offset and length, as of io_uring's zero-copy receive.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from devmem.errors import PoolError
from devmem.uapi import AREA_SHIFT, DMABUF_CMSG, MAX_DONTNEED_FRAGS, MAX_DONTNEED_RANGES, MAX_TOKEN


class Frag(NamedTuple):
    """A piece of a region that holds received payload, until its token is returned."""

    offset: int
    """In the region, bytes."""
    length: int
    token: int
    region_id: int
    """The receive queue's that it landed in; 0: host memory ("linear")."""


class _Lease(NamedTuple):
    frag: Frag
    give_back: Callable[[Frag], None]


def cmsgs(frags: Iterable[Frag]) -> npt.NDArray[np.void]:
    """Return frags as the kernel describes them: an array of `struct dmabuf_cmsg`."""
    return np.array([(frag.offset, frag.length, frag.token, frag.region_id, 0) for frag in frags], DMABUF_CMSG)


def ranges(tokens: Iterable[int]) -> list[tuple[int, int]]:
    """Return tokens as ranges (first, count) for `dontneed`; neighbours in order become one."""
    found: list[tuple[int, int]] = []
    for token in tokens:
        if found and token == sum(found[-1]):
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((token, 1))
    return found


class Tokens:
    """Frags of one endpoint that are in the application's hands."""

    def __init__(self, *, first: int | None = None) -> None:
        """Start with token `first`; by default a random one."""
        self._next = secrets.randbelow(MAX_TOKEN + 1) if first is None else first
        self._leases: dict[int, _Lease] = {}
        self._by_place: dict[int, int] = {}  # token by area and offset
        self.skipped = 0  # tokens and ring entries that named nothing

    def __len__(self) -> int:
        """Return how many frags are out."""
        return len(self._leases)

    def issue(self, region_id: int, *, offset: int, length: int, give_back: Callable[[Frag], None]) -> Frag:
        """Hand out a piece; `return_token` is called once, when it is returned."""
        while self._next in self._leases:
            self._next = (self._next + 1) & MAX_TOKEN
        frag = Frag(offset, length, self._next, region_id)
        self._leases[frag.token] = _Lease(frag, give_back)
        self._by_place[region_id << AREA_SHIFT | offset] = frag.token
        self._next = (self._next + 1) & MAX_TOKEN
        return frag

    def dontneed(self, token_ranges: Sequence[tuple[int, int]]) -> int:
        """Return frags by ranges (first token, count); say how many were freed.

        At most 1,024 tokens are looked at: with less freed than asked for, ask again. Raises PoolError for more than
        128 ranges, and for one that cannot be.
        """
        if len(token_ranges) > MAX_DONTNEED_RANGES:
            raise PoolError(
                f"{len(token_ranges)} ranges are more than the {MAX_DONTNEED_RANGES} of a call; make several"
            )
        for start, count in token_ranges:
            if not (0 <= start <= MAX_TOKEN and 0 <= count <= 0xFFFFFFFF):
                raise PoolError(f"tokens {start}, {count} of them: no such range; tokens have 31 bits, counts 32")
        freed = looked_at = 0
        for start, count in token_ranges:
            for token in range(start, start + min(count, MAX_DONTNEED_FRAGS - looked_at)):
                looked_at += 1
                freed += self._free(token)
        return freed

    def give_back(self, token: int) -> None:
        """Return one frag. Raises PoolError for a token that was returned before, or is not of this endpoint."""
        if not self._free(token):
            raise PoolError(f"token {token} is unknown: it was returned before, or is another endpoint's")

    def refill(self, off: int, *, length: int) -> bool:
        """Return the frag of a ring's entry (area and offset, bytes); False: there is no such frag, it is skipped."""
        token = self._by_place.get(off)
        if token is None or self._leases[token].frag.length != length:
            self.skipped += 1
            return False
        return self._free(token)

    def forget(self) -> None:
        """Take no more returns: the memory has gone with its endpoint."""
        self._leases.clear()
        self._by_place.clear()

    def _free(self, token: int) -> bool:
        lease = self._leases.pop(token, None)
        if lease is None:
            self.skipped += 1
            return False
        del self._by_place[lease.frag.region_id << AREA_SHIFT | lease.frag.offset]
        lease.give_back(lease.frag)
        return True
