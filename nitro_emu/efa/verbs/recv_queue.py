"""The receive queue of a queue pair, in the card's ring memfd.

A request takes a descriptor for each of its buffers. The ring has room for `requests` of the largest; a request is free
again when its completion has been polled.
"""

from __future__ import annotations

import errno
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nitro_emu.efa.abi import io
from nitro_emu.efa.abi.io import Sge
from nitro_emu.efa.abi.limits import MAX_KEY
from nitro_emu.efa.abi.limits import MAX_RECV_SGE_BYTES as _MOST
from nitro_emu.efa.verbs.link import Doorbell
from nitro_emu.efa.verbs.request_ids import Numbers, RequestRing, U64Array, numbers
from nitro_emu.errors import AbiError, VerbsError

_NO_BUFFER = (Sge(0, 0, 0),)
_ONE_BUFFER = io.RX_FIRST | io.RX_LAST


class RecvRing(RequestRing):
    """Requests of up to `max_sges` buffers."""

    def __init__(
        self, ring: mmap.mmap, *, offset: int, depth: int, max_sges: int, doorbell: Doorbell, generation: int
    ) -> None:
        self.requests = depth // max_sges
        super().__init__(depth, requests=self.requests, doorbell=doorbell, generation=generation)
        self.max_sges = max_sges
        self._ring = memoryview(ring)[offset:]
        descriptors: npt.NDArray[Any] = np.frombuffer(ring, io.RX_DESC_DTYPE, depth, offset)
        self._addresses, self._req_ids = descriptors["address"], descriptors["req_id"]
        self._lengths, self._lkey_ctrls = descriptors["length"], descriptors["lkey_ctrl"]

    def post(self, wr_id: int, *, sges: Sequence[Sge]) -> None:
        """Write a request, without a doorbell. One without buffers receives messages of no bytes. Raises VerbsError."""
        if len(sges) > self.max_sges:
            raise VerbsError(errno.EINVAL, f"{len(sges)} buffers, the queue pair was created for {self.max_sges}")
        if self.ids.in_flight == self.requests:
            raise VerbsError(errno.ENOMEM, f"the receive queue is full: {self.requests} requests are not polled yet")
        sges = sges or _NO_BUFFER
        req_id = self.ids.reserve(wr_id)
        try:
            descriptors = [
                io.pack_rx(
                    req_id=req_id,
                    address=sge.address,
                    length=min(sge.length, _MOST),
                    lkey=sge.lkey,
                    first=index == 0,
                    last=index == len(sges) - 1,
                )
                for index, sge in enumerate(sges)
            ]
        except AbiError as error:
            self.ids.complete(req_id)
            raise VerbsError(errno.EINVAL, f"{error}") from error
        for descriptor in descriptors:
            start = (self._posted & self._mask) * io.RX_DESC_BYTES
            self._ring[start : start + io.RX_DESC_BYTES] = descriptor
            self._posted += 1

    def post_many(self, addresses: Numbers, *, lengths: Numbers, lkey: int, wr_ids: U64Array) -> None:
        """Write requests of one buffer each, and ring once. Raises VerbsError: full (ENOMEM)."""
        count = len(wr_ids)
        if count > self.free:
            raise VerbsError(errno.ENOMEM, f"the receive queue has room for {self.free} of {count} requests")
        places, sizes = numbers(addresses), numbers(lengths)
        sizes = min(sizes, _MOST) if isinstance(sizes, int) else np.minimum(sizes, _MOST)
        req_ids = self.ids.reserve_many(wr_ids)
        for part, slots in self._take(count):
            self._addresses[slots] = places if isinstance(places, int) else places[part]
            self._lengths[slots] = sizes if isinstance(sizes, int) else sizes[part]
            self._req_ids[slots], self._lkey_ctrls[slots] = req_ids[part], lkey & MAX_KEY | _ONE_BUFFER
        self.ring()
