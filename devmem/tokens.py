"""Tokens, by which an application returns received fragments one by one, as with Device Memory TCP.

1. `issue` returns a fragment: its offset, its region, and a token. An endpoint's tokens count up from a random number,
   so that another endpoint's token is most likely unknown here. Fragments issued together have consecutive tokens.
2. `dontneed` accepts ranges of tokens with the kernel's limits (`uapi`). It returns how many fragments were freed, and
   skips unknown tokens (returned before, or of another endpoint).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from devmem.errors import PoolError
from devmem.uapi import DMABUF_CMSG, MAX_DONTNEED_FRAGS, MAX_DONTNEED_RANGES, MAX_TOKEN


class Frag(NamedTuple):
    """A fragment of received payload in a region; valid until its token is returned."""

    offset: int
    """Offset in the region in bytes."""
    length: int
    token: int
    region_id: int
    """Number of the receive queue that it landed in; 0: host memory ("linear")."""


class _Lease(NamedTuple):
    frag: Frag
    give_back: Callable[[Frag], None]


def cmsgs(frags: Iterable[Frag]) -> npt.NDArray[np.void]:
    """Return fragments in the kernel's layout, an array of `struct dmabuf_cmsg`."""
    return np.array([(frag.offset, frag.length, frag.token, frag.region_id, 0) for frag in frags], DMABUF_CMSG)


def ranges(tokens: Iterable[int]) -> list[tuple[int, int]]:
    """Return tokens as ranges (first, count) for `dontneed`; consecutive tokens form one range."""
    found: list[tuple[int, int]] = []
    for token in tokens:
        if found and token == sum(found[-1]):
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((token, 1))
    return found


class Tokens:
    """The fragments of one endpoint that the application holds."""

    def __init__(self, *, first: int | None = None) -> None:
        """Start with token `first`; by default a random one."""
        self._next = secrets.randbelow(MAX_TOKEN + 1) if first is None else first
        self._leases: dict[int, _Lease] = {}
        self.skipped = 0  # unknown tokens

    def __len__(self) -> int:
        """Return the number of fragments that were not returned yet."""
        return len(self._leases)

    def issue(self, region_id: int, *, offset: int, length: int, give_back: Callable[[Frag], None]) -> Frag:
        """Issue a fragment; `give_back` is called once, when it is returned."""
        while self._next in self._leases:
            self._next = (self._next + 1) & MAX_TOKEN
        frag = Frag(offset, length, self._next, region_id)
        self._leases[frag.token] = _Lease(frag, give_back)
        self._next = (self._next + 1) & MAX_TOKEN
        return frag

    def dontneed(self, token_ranges: Sequence[tuple[int, int]]) -> int:
        """Return fragments by ranges (first token, count); return how many were freed.

        A call processes at most 1,024 tokens; if it freed fewer than requested, call it again. Raises PoolError for
        more than 128 ranges, and for an invalid range.
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

    def forget(self) -> None:
        """Forget all fragments, as their memory was released with the endpoint."""
        self._leases.clear()

    def _free(self, token: int) -> bool:
        lease = self._leases.pop(token, None)
        if lease is None:
            self.skipped += 1
            return False
        lease.give_back(lease.frag)
        return True
