"""The send queue of a queue pair, in the card's ring memfd.

A slot is free again when
its completion has been polled, as in rdma-core, though the card has copied it long before. Requests that are being
built (`builder`) have their slot already, and are given to the card together by the doorbell.
"""

from __future__ import annotations

import errno
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nitro_emu.efa.abi import io, memory
from nitro_emu.efa.abi.io import ProcessingHint, SendOp, Sge
from nitro_emu.efa.verbs.link import Doorbell
from nitro_emu.efa.verbs.request_ids import Numbers, RequestRing, U64Array, numbers
from nitro_emu.errors import AbiError, VerbsError


class UdAddress(NamedTuple):
    """Where a request goes: numbers only."""

    ah: int
    qp_num: int
    qkey: int


_NOWHERE: Final = UdAddress(0, 0, 0)


@dataclass(slots=True)
class Draft:
    """A request that has a slot, and that the card does not know of yet."""

    slot: int
    phase: int
    req_id: int
    op: SendOp = SendOp.SEND
    immediate: int | None = None
    remote: tuple[int, int] | None = None
    """rkey and address."""
    destination: UdAddress = _NOWHERE
    sges: Sequence[Sge] = ()
    data: bytes | None = None
    """The payload, instead of `sges`."""
    hints: int = ProcessingHint.NONE

    def pack(self, wqe_bytes: int) -> bytes:
        """Return its entry. Raises VerbsError (EINVAL)."""
        length = sum(sge.length for sge in self.sges) if self.data is None else len(self.data)
        try:
            return io.pack_wqe(
                self.op,
                req_id=self.req_id,
                phase=self.phase,
                dest_qp_num=self.destination.qp_num,
                ah=self.destination.ah,
                qkey=self.destination.qkey,
                sges=self.sges,
                data=self.data,
                remote=None if self.remote is None else io.RemoteMemory(*self.remote, length),
                immediate=self.immediate,
                hints=self.hints,
                wqe_bytes=wqe_bytes,
            )
        except AbiError as error:
            raise VerbsError(errno.EINVAL, f"{error}") from error


class SendRing(RequestRing):
    """Requests of up to `max_sges` buffers, or `max_inline_bytes` of inline data."""

    def __init__(
        self,
        ring: mmap.mmap,
        *,
        depth: int,
        wqe_bytes: int,
        max_sges: int,
        max_inline_bytes: int,
        doorbell: Doorbell,
        generation: int,
    ) -> None:
        super().__init__(depth, requests=depth, doorbell=doorbell, generation=generation)
        self.max_sges = max_sges
        self.max_inline_bytes = max_inline_bytes
        self.wqe_bytes = wqe_bytes
        self._ring = memoryview(ring)
        wqes: npt.NDArray[Any] = np.frombuffer(ring, io.wqe_dtype(wqe_bytes), depth)
        self._raw = wqes.view(np.dtype((np.void, wqe_bytes)))
        self._req_ids, self._buffers = (
            wqes["req_id"],
            [(wqes[name]["address"], wqes[name]["length"]) for name in ("first", "second")],
        )

    def reserve(self, wr_id: int) -> Draft:
        """Begin a request. Raises VerbsError: full (ENOMEM)."""
        if self.ids.in_flight == self.depth:
            raise VerbsError(errno.ENOMEM, f"the send queue is full: {self.depth} requests are not polled yet")
        posted, self._posted = self._posted, self._posted + 1
        return Draft(posted & self._mask, memory.sq_phase(posted, depth=self.depth), self.ids.reserve(wr_id))

    def roll_back(self, drafts: Sequence[Draft]) -> None:
        """Give back the newest slots, which have not been given to the card, and their ids."""
        self._posted -= len(drafts)
        for draft in drafts:
            self.ids.complete(draft.req_id)

    def write(self, draft: Draft) -> None:
        """Write a request into its slot. Raises VerbsError (EINVAL)."""
        start = draft.slot * self.wqe_bytes
        self._ring[start : start + self.wqe_bytes] = draft.pack(self.wqe_bytes)

    def post_many(
        self,
        op: SendOp,
        *,
        destination: UdAddress,
        addresses: Numbers,
        lengths: Numbers,
        lkey: int,
        wr_ids: U64Array,
        immediate: int | None = None,
        remote_addresses: Numbers = 0,
        rkey: int = 0,
    ) -> None:
        """Write requests that differ in their addresses and lengths only, and ring once. Raises VerbsError.

        Each of the three may be one number for all, or one for each of `wr_ids`.
        """
        count = len(wr_ids)
        if count > self.free:
            raise VerbsError(errno.ENOMEM, f"the send queue has {self.free} free slots for {count} requests")
        like = Draft(0, 0, 0, op, immediate, None, destination, (Sge(0, 0, lkey),))
        buffers = [numbers(addresses)]
        if op != SendOp.SEND:
            like.remote = rkey, 0
            buffers.insert(0, numbers(remote_addresses))
        like.pack(self.wqe_bytes)  # what is wrong with it raises before anything is reserved
        sizes, req_ids = numbers(lengths), self.ids.reserve_many(wr_ids)
        for part, slots in self._take(count):
            like.phase = memory.sq_phase(self._posted, depth=self.depth)
            self._raw[slots] = np.frombuffer(like.pack(self.wqe_bytes), self._raw.dtype)
            self._req_ids[slots] = req_ids[part]
            for (places, room), values in zip(self._buffers, buffers, strict=False):
                places[slots] = values if isinstance(values, int) else values[part]
                room[slots] = sizes if isinstance(sizes, int) else sizes[part]
        self.ring()
