"""The send queue of a queue pair, in the card's ring memfd.

Counters only grow; the position in the ring, the phase bit and the doorbell follow from them. A slot is free again when
its completion has been polled, as in rdma-core, though the card has copied it long before. Requests that are being
built (`builder`) have their slot already, and are given to the card together by the doorbell.
"""

from __future__ import annotations

import errno
import mmap
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nitro_emu.efa.abi import io, memory
from nitro_emu.efa.abi.io import SendOp, Sge
from nitro_emu.efa.abi.limits import WQE_BYTES
from nitro_emu.efa.verbs.link import Doorbell
from nitro_emu.efa.verbs.request_ids import Numbers, RequestIds, U64Array, numbers
from nitro_emu.errors import AbiError, VerbsError


class Destination(NamedTuple):
    """Where a request goes: numbers only."""

    ah: int
    qp_num: int
    qkey: int


class SendQueue:
    """See the module. `lock` is held by whoever changes the queue."""

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
        self.depth = depth
        self.max_sges = max_sges
        self.max_inline_bytes = max_inline_bytes
        self.wqe_bytes = wqe_bytes
        self.ids = RequestIds(depth, generation=generation)
        self.lock = threading.RLock()
        self._doorbell = doorbell
        self._mask = depth - 1
        self._posted = 0
        self._ring = memoryview(ring)
        dtype = io.WQE_DTYPE if wqe_bytes == WQE_BYTES else io.WIDE_WQE_DTYPE
        wqes: npt.NDArray[np.void] = np.frombuffer(ring, dtype, depth)
        self._template: npt.NDArray[np.void] = np.zeros(1, dtype)
        self._raw = wqes.view(np.dtype((np.void, wqe_bytes)))
        self._raw_template = self._template.view(self._raw.dtype)
        self._req_ids: npt.NDArray[Any] = wqes["meta"]["req_id"]
        self._template_key: tuple[int, int, Destination, int] | None = None
        local, first = _Buffers(wqes["local"], key="lkey"), _Buffers(wqes["sgl"][:, 0], key="lkey")
        self._buffers = {True: local, False: first}  # by whether it is RDMA
        self._remotes = _Buffers(wqes["remote"], key="rkey")

    @property
    def free(self) -> int:
        """How many requests can be posted now."""
        return self.depth - self.ids.in_flight

    def reset(self, generation: int) -> None:
        """Start from the beginning, as the card does in state RESET."""
        with self.lock:
            self.ids.reset(generation)
            self._posted = 0
            self._doorbell.store(0)

    def reserve(self, wr_id: int) -> tuple[int, int, int]:
        """Take a slot and a request id. Returns slot, phase bit and id. Raises VerbsError: full (ENOMEM)."""
        if self.ids.in_flight == self.depth:
            raise VerbsError(errno.ENOMEM, f"the send queue is full: {self.depth} requests are not polled yet")
        posted, self._posted = self._posted, self._posted + 1
        return posted & self._mask, memory.sq_phase(posted, depth=self.depth), self.ids.reserve(wr_id)

    def roll_back(self, req_ids: Sequence[int]) -> None:
        """Give back the newest slots, which have not been given to the card, and their ids."""
        self._posted -= len(req_ids)
        for req_id in req_ids:
            self.ids.complete(req_id)

    def write(self, slot: int, *, wqe: bytes) -> None:
        """Write a request into its slot."""
        start = slot * self.wqe_bytes
        self._ring[start : start + self.wqe_bytes] = wqe

    def ring(self) -> None:
        """Give all that has been written to the card."""
        self._doorbell.ring(self._posted & memory.COUNTER_MASK)

    def post(
        self,
        wr_id: int,
        *,
        destination: Destination,
        sges: Sequence[Sge],
        inline: bytes | None,
        immediate: int | None,
    ) -> None:
        """Write a SEND, without a doorbell. Raises VerbsError."""
        slot, phase, req_id = self.reserve(wr_id)
        try:
            wqe = io.pack_wqe(
                req_id=req_id,
                phase=phase,
                dest_qp_num=destination.qp_num,
                ah=destination.ah,
                qkey=destination.qkey,
                sges=sges,
                data=inline,
                immediate=immediate,
                wqe_bytes=self.wqe_bytes,
            )
        except AbiError as error:
            self.roll_back([req_id])
            raise VerbsError(errno.EINVAL, f"{error}") from error
        self.write(slot, wqe=wqe)

    def post_many(
        self,
        op: SendOp,
        *,
        destination: Destination,
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
        ctrl1 = io.META_DESC | op | (0 if immediate is None else io.HAS_IMM)
        batch = _Batch(addresses, lengths, remote_addresses, lkey, rkey, rdma=op != SendOp.SEND)
        req_ids = self.ids.reserve_many(wr_ids)
        done = 0
        while done < count:
            slot = self._posted & self._mask
            run = min(count - done, self.depth - slot)
            phase = memory.sq_phase(self._posted, depth=self.depth)
            self._fill_template(ctrl1, phase=phase, destination=destination, immediate=immediate or 0)
            part, slots = slice(done, done + run), slice(slot, slot + run)
            self._raw[slots] = self._raw_template
            self._req_ids[slots] = req_ids[part]
            self._fill_addresses(slots, batch, part=part)
            done, self._posted = done + run, self._posted + run
        self.ring()

    def _fill_template(self, ctrl1: int, *, phase: int, destination: Destination, immediate: int) -> None:
        key = (ctrl1, phase, destination, immediate)
        if key == self._template_key:
            return
        self._template_key = key
        meta = self._template["meta"]
        meta["ctrl1"], meta["ctrl2"] = ctrl1, io.FIRST | io.LAST | io.COMP_REQ | phase
        meta["dest_qp_num"], meta["ah"], meta["qkey"] = destination.qp_num, destination.ah, destination.qkey
        meta["length"], meta["immediate_data"] = 1, immediate

    def _fill_addresses(self, slots: slice, batch: _Batch, *, part: slice) -> None:
        lengths = batch.part(batch.lengths, part)
        buffers = self._buffers[batch.rdma]
        buffers.addresses[slots] = batch.part(batch.addresses, part)
        buffers.lengths[slots] = lengths
        buffers.keys[slots] = batch.lkey
        if batch.rdma:
            self._remotes.addresses[slots] = batch.part(batch.remote_addresses, part)
            self._remotes.lengths[slots] = lengths
            self._remotes.keys[slots] = batch.rkey


class _Batch:
    """Addresses and lengths of requests: arrays, or a number for all of them."""

    __slots__ = ("addresses", "lengths", "lkey", "rdma", "remote_addresses", "rkey")

    def __init__(
        self,
        addresses: Numbers,
        lengths: Numbers,
        remote_addresses: Numbers,
        lkey: int,
        rkey: int,
        *,
        rdma: bool,
    ) -> None:
        self.addresses = numbers(addresses)
        self.lengths = numbers(lengths)
        self.remote_addresses = numbers(remote_addresses)
        self.lkey = lkey
        self.rkey = rkey
        self.rdma = rdma

    @staticmethod
    def part(values: U64Array | int, part: slice) -> U64Array | int:
        """Return some of the values."""
        return values if isinstance(values, int) else values[part]


class _Buffers:
    """The fields of one buffer of every slot."""

    __slots__ = ("addresses", "keys", "lengths")

    def __init__(self, descriptors: npt.NDArray[Any], *, key: str) -> None:
        self.addresses, self.lengths, self.keys = descriptors["address"], descriptors["length"], descriptors[key]
