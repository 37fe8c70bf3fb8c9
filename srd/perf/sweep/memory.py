"""Memory of peers for writes and reads: a slot for each request that there may be at a time.

Request k of peer p lands in slot k modulo `depth` of the peer, and has block k * peers + p of the source (payload.py).
A round is as many requests as there are slots. Before a round the slots of a verified test have the complement of what
is expected, so that a byte that is missing is wrong, and so is one in a wrong place.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from devmem.region import Region
from srd.perf.errors import PerfError
from srd.perf.payload import Number, PayloadSource


class MessageSlots:
    """The memory of one end."""

    def __init__(self, source: PayloadSource, *, size_bytes: int, depth: int, peers: int) -> None:
        self._source, self._size_bytes = source, size_bytes
        self.depth, self._peers = depth, peers
        self.peer_bytes = depth * size_bytes
        self.region = Region(peers * self.peer_bytes, name="srd-perf-slots")
        self._array: npt.NDArray[np.uint8] = self.region.array

    def offset(self, peer: int) -> int:
        """Return where a peer's slots begin."""
        return peer * self.peer_bytes

    def slot_offset(self, request: Number) -> Number:
        """Return where in its peer's slots a request lands, or requests."""
        return request % self.depth * self._size_bytes

    def _expected(self, peer: int, request: int) -> npt.NDArray[np.uint8]:
        return self._source.block(number_of(request, peer=peer, peers=self._peers))

    def _slot(self, peer: int, request: int) -> npt.NDArray[np.uint8]:
        at = self.offset(peer) + self.slot_offset(request)
        return self._array[at : at + self._size_bytes]

    def prepare(self, first: int) -> None:
        """Write what is certainly wrong in a round that begins with request `first`."""
        for peer in range(self._peers):
            for request in range(first, first + self.depth):
                np.invert(self._expected(peer, request), out=self._slot(peer, request))

    def compare(self, first: int, count: int) -> None:
        """Compare a round of `count` requests, and prepare the next one. Raises PerfError."""
        for peer in range(self._peers):
            for request in range(first, first + share(count, peer=peer, peers=self._peers)):
                at = self._difference(peer, request)
                if at is not None:
                    raise PerfError(f"peer {peer + 1}: byte {at} of request {request} is not what was sent")
        self.prepare(first + self.depth)

    def _difference(self, peer: int, request: int) -> int | None:
        """Return the first byte of a slot that is wrong. No view is left in an error's traceback."""
        expected, found = self._expected(peer, request), self._slot(peer, request)
        return None if np.array_equal(expected, found) else int(np.flatnonzero(expected != found)[0])

    def close(self) -> None:
        """Give the memory back."""
        del self._array
        self.region.close()


def number_of(request: int, *, peer: int, peers: int) -> int:
    """Return the block of the source that a peer's request has."""
    return request * peers + peer


def share(count: int, *, peer: int, peers: int) -> int:
    """Return how many of a round of `count` requests are this peer's."""
    return count // peers + (peer < count % peers)
