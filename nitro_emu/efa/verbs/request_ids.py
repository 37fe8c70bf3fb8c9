"""A queue's ring; its request ids, and the application's work request ids behind them.

A descriptor has 16 bits for its request's id: an index into this table, and above it a generation of the queue, which
tells a completion that an earlier queue of the same number left behind. Completions come in any order, so free ids are
a stack. Ids are reserved one by one, or as arrays.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nitro_emu.efa.abi import memory
from nitro_emu.efa.verbs.link import Doorbell

_REQ_ID_MASK = (1 << 16) - 1

Numbers: TypeAlias = int | npt.NDArray[Any] | Sequence[int]
"""Numbers of many requests: one for each, or one for all."""

U16Array = npt.NDArray[np.uint16]
U64Array = npt.NDArray[np.uint64]


def numbers(values: Numbers) -> U64Array | int:
    """Return them as an array, or as the number for all."""
    if isinstance(values, int):
        return values
    array = np.asarray(values, np.uint64)
    return array if array.ndim else int(array)


class RequestIds:
    """`count` ids, of which the first `in_flight` of the stack are in use."""

    __slots__ = (
        "_free",
        "_free_array",
        "_generation_bits",
        "_index_bits",
        "_mask",
        "_wr_id_array",
        "_wr_ids",
        "count",
        "in_flight",
    )

    def __init__(self, count: int, *, generation: int) -> None:
        self.count = count
        self._index_bits = (count - 1).bit_length()
        self._mask = (1 << self._index_bits) - 1
        self._wr_id_array = np.zeros(count, np.uint64)
        self._wr_ids = self._wr_id_array.data
        self._free_array = np.zeros(count, np.uint16)
        self._free = self._free_array.data
        self._generation_bits = 0
        self.in_flight = 0
        self.reset(generation)

    def reset(self, generation: int) -> None:
        """Forget all that is in flight, and give out ids of another generation from now on."""
        self._generation_bits = generation << self._index_bits & _REQ_ID_MASK
        self._free_array[:] = np.arange(self.count, dtype=np.uint32) | self._generation_bits
        self.in_flight = 0

    def reserve(self, wr_id: int) -> int:
        """Return the id of a new request. There must be one free."""
        req_id = self._free[self.in_flight]
        self._wr_ids[req_id & self._mask] = wr_id
        self.in_flight += 1
        return req_id

    def reserve_many(self, wr_ids: U64Array) -> U16Array:
        """Return the ids of new requests. There must be as many free."""
        first, self.in_flight = self.in_flight, self.in_flight + len(wr_ids)
        req_ids = self._free_array[first : self.in_flight].copy()
        self._wr_id_array[req_ids & self._mask] = wr_ids
        return req_ids

    def complete(self, req_id: int) -> int | None:
        """Free an id, and return the application's; None if it is not in use: of another generation, for example."""
        index = req_id & self._mask
        if not self.in_flight or req_id ^ index != self._generation_bits or index >= self.count:
            return None
        self.in_flight -= 1
        self._free[self.in_flight] = req_id
        return self._wr_ids[index]

    def complete_many(self, req_ids: U16Array) -> tuple[U64Array, npt.NDArray[np.bool_] | None]:
        """Free ids, and return the application's, and which of `req_ids` are in use (None: all); the others' are 0."""
        indices = req_ids & self._mask
        valid = req_ids ^ indices == self._generation_bits
        if self.count <= self._mask:
            valid &= indices < self.count
        if len(req_ids) <= self.in_flight and valid.all():
            self._free_many(req_ids)
            return self._wr_id_array[indices], None
        valid[np.flatnonzero(valid)[self.in_flight :]] = False
        self._free_many(req_ids[valid])
        wr_ids = np.zeros(len(req_ids), np.uint64)
        wr_ids[valid] = self._wr_id_array[indices[valid]]
        return wr_ids, valid

    def _free_many(self, req_ids: U16Array) -> None:
        last, self.in_flight = self.in_flight, self.in_flight - len(req_ids)
        self._free_array[self.in_flight : last] = req_ids


class RequestRing:
    """The requests of one queue in the card's ring memfd. `lock` is held by whoever changes it.

    Counters only grow; position in the ring, phase bit and doorbell follow from them.
    """

    def __init__(self, depth: int, *, requests: int, doorbell: Doorbell, generation: int) -> None:
        """`depth`: entries, `requests`: how many of the largest these are."""
        self.depth = depth
        self.ids = RequestIds(requests, generation=generation)
        self.lock = threading.RLock()
        self._doorbell = doorbell
        self._mask = depth - 1
        self._posted = 0

    @property
    def free(self) -> int:
        """How many requests can be posted now."""
        return self.ids.count - self.ids.in_flight

    def reset(self, generation: int) -> None:
        """Start from the beginning, as the card does in state RESET."""
        with self.lock:
            self.ids.reset(generation)
            self._posted = 0
            self._doorbell.store(0)

    def ring(self) -> None:
        """Give all that has been written to the card."""
        self._doorbell.ring(self._posted & memory.COUNTER_MASK)

    def _take(self, count: int) -> Iterator[tuple[slice, slice]]:
        """Take the next `count` entries; yield them as runs up to the ring's end: which of them, and their slots."""
        done = 0
        while done < count:
            slot = self._posted & self._mask
            run = min(count - done, self.depth - slot)
            yield slice(done, done + run), slice(slot, slot + run)
            done, self._posted = done + run, self._posted + run
