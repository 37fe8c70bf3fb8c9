"""Send requests: from the entries of send queues to requests of the transport, and back to completions.

1. An entry is copied once, then validated against the tables of its program; what is wrong with it is the status of its
   completion. Nothing that a program writes into its rings affects another.
2. A payload is sent from registered memory in place. Inline data, and two buffers, are sent from a copy.
3. Runs of equal small sends are one batch of the transport (`wqe_runs`).
4. A send that its responder was not ready for (RNR) is posted again after a pause, as often as the queue pair's
   `rnr_retry` says. What was refused is never delivered, so it is delivered at most once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from devmem.registry import Access
from nitro_emu.efa.abi import io
from nitro_emu.efa.abi.limits import MAX_RDMA_BYTES, RNR_RETRY_FOREVER
from nitro_emu.efa.card.memory_region import CardMemoryRegion
from nitro_emu.efa.card.objects import CardAddressHandle
from nitro_emu.efa.card.queue_pair import CardQueuePair
from nitro_emu.efa.card.vf import Vf
from nitro_emu.efa.card.wqe_runs import FEW, WqeRun, runs
from nitro_emu.errors import AbiError
from srd.errors import UsageError
from srd.proto.wire.data import Opcode
from srd.proto.wire.status import Status
from srd.proto.work_request import BatchRequest, WorkRequest

RNR_PAUSE_S: Final = 0.001
"""First pause before a send is posted again that its responder was not ready for; it doubles each time."""
MAX_RNR_PAUSE_S: Final = 0.016
"""Longest such pause: a program that was delayed by a few time slices loses no more by it."""
RETRY_SHARE: Final = 32
"""Sends that one pass posts again."""
INDEX_BITS: Final = 16
"""Bits of the transport's request numbers below the number of a `CardRequest`: its requests, by index."""
INDEX_MASK: Final = (1 << INDEX_BITS) - 1

# Plain integers: an enum's member is looked up, combined and compared by functions in Python.
_SEND: Final = int(io.SendOp.SEND)
_READ: Final = int(io.SendOp.RDMA_READ)
_LOCAL_WRITE: Final = int(Access.LOCAL_WRITE)
_STATUS_OF_FIELD: Final = {
    "op": Status.LOCAL_ERROR_UNSUPPORTED_OP,
    "lkey": Status.LOCAL_ERROR_INVALID_LKEY,
    "length": Status.LOCAL_ERROR_BAD_LENGTH,
    "inline": Status.LOCAL_ERROR_BAD_LENGTH,
}
"""The status of an entry with a field that no valid one has; LOCAL_ERROR_QP_INTERNAL_ERROR for all others."""
_OPCODES: Final = {
    io.SendOp.SEND: Opcode.SEND,
    io.SendOp.RDMA_READ: Opcode.READ,
    io.SendOp.RDMA_WRITE: Opcode.WRITE,
}


class RefusedEntryError(Exception):
    """An entry that cannot be carried out; never leaves this module."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.name)
        self.status = status


class CardRequest:
    """One entry, or a run of equal ones.

    `memory`: what it reads or writes, each counting one use; `owner`: what its copy of the payload belongs to; `wr`: of
    one entry, of a run as for its first; `addresses`: of a run, where each payload lies; `attempts`: how often the
    responder was not ready.
    """

    def __init__(  # no dataclass, whose constructor is not compiled: there is one of these for each message
        self,
        qp: CardQueuePair,
        handle: CardAddressHandle,
        *,
        op: int,
        length: int,
        req_ids: list[int],
        memory: tuple[CardMemoryRegion, ...],
        owner: Any,
        wr: WorkRequest,
        attempts: int = 0,
    ) -> None:
        self.qp = qp
        self.handle = handle
        self.op = op
        self.length = length  # of each
        self.req_ids = req_ids
        self.memory = memory
        self.owner = owner
        self.wr = wr
        self.addresses: npt.NDArray[np.uint64] | None = None
        self.epoch = qp.epoch  # when the entry was copied
        self.attempts = attempts
        self.left = 0  # entries that have not completed
        self.peer: int | None = None  # None: it waits for its peer to open, or for its next attempt
        self.timer: asyncio.TimerHandle | None = None
        self.is_cancelled = False


class CardRequester:
    """The requests of all queue pairs of a virtual function."""

    def __init__(self, vf: Vf) -> None:
        self._vf = vf
        self._tables = vf.tables
        self._engine = vf.endpoint.engine
        self.idle = asyncio.Event()
        """Set while no request is in progress."""
        self.idle.set()
        self._open: dict[int, CardRequest] = {}
        self._next = 1
        self._due: deque[tuple[int, CardRequest]] = deque()  # whose pause is over

    # -- entries ------------------------------------------------------------------------------------------------

    def process(self, qp: CardQueuePair, raw: bytes, *, phase: int) -> None:
        """Carry out entries that were copied from a send queue, all of one phase."""
        if qp.sq is None:
            return
        size = qp.sq.wqe_bytes
        count = len(raw) // size
        if count < FEW:
            for at in range(0, len(raw), size):
                self._process_one(qp, raw[at : at + size], phase=phase)
            return
        for run in runs(raw, wqe_bytes=size):
            if run.length < FEW:
                for index in range(run.first, run.first + run.length):
                    self._process_one(qp, raw[index * size : (index + 1) * size], phase=phase)
            else:
                self._process_run(qp, raw, run, size=size, phase=phase)

    def _process_one(self, qp: CardQueuePair, raw: bytes, *, phase: int) -> None:
        try:
            descriptor = self._decode_untrusted(raw, phase=phase)
            request = self._plan(qp, descriptor)
        except RefusedEntryError as refused:
            op = raw[2] & io.OP_MASK
            self._complete_entries(qp, [io.req_id_of(raw)], status=refused.status, op=op, length=0)
            return
        self._start(request)

    def _decode_untrusted(self, raw: bytes, *, phase: int) -> io.SendDescriptor:
        try:
            descriptor = io.unpack_wqe_untrusted(raw)
        except AbiError as error:
            raise RefusedEntryError(_STATUS_OF_FIELD.get(error.field, Status.LOCAL_ERROR_QP_INTERNAL_ERROR)) from None
        if descriptor.phase != phase:
            raise RefusedEntryError(Status.LOCAL_ERROR_QP_INTERNAL_ERROR)
        return descriptor

    def _handle(self, qp: CardQueuePair, number: int) -> CardAddressHandle:
        handle = self._tables.handles.get(number)
        if handle is None or handle.pd is not qp.pd:
            raise RefusedEntryError(Status.LOCAL_ERROR_INVALID_AH)
        return handle

    def _place(self, qp: CardQueuePair, sge: io.Sge, *, writes: bool = False) -> tuple[int, CardMemoryRegion]:
        """Return where a buffer lies. `writes`: whether it is to be written."""
        memory = self._tables.memory.get(sge.lkey)
        if memory is None or memory.pd is not qp.pd or (writes and not memory.permissions & _LOCAL_WRITE):
            raise RefusedEntryError(Status.LOCAL_ERROR_INVALID_LKEY)
        address = memory.place(sge.address, length=sge.length)
        if address is None:
            raise RefusedEntryError(Status.LOCAL_ERROR_INVALID_LKEY)
        return address, memory

    def _plan(self, qp: CardQueuePair, descriptor: io.SendDescriptor) -> CardRequest:
        """Return the request of an entry. Raises RefusedEntryError."""
        handle = self._handle(qp, descriptor.ah)
        op, sges = descriptor.op, [sge for sge in descriptor.sges if sge.length]
        length = len(descriptor.data) if descriptor.inline else sum(sge.length for sge in sges)
        if length > (self._vf.mtu_bytes if op == _SEND else MAX_RDMA_BYTES):
            raise RefusedEntryError(Status.LOCAL_ERROR_BAD_LENGTH)
        placed = [self._place(qp, sge, writes=op == _READ) for sge in sges]
        wr = WorkRequest(
            0, length, opcode=_OPCODES[op], immediate=descriptor.immediate if descriptor.has_imm else None,
            flow=qp.number,
        )  # fmt: skip
        owner = None
        if descriptor.inline or len(placed) > 1:
            data = descriptor.data or b"".join(
                memory.view[address - memory.base :][: sge.length]
                for (address, memory), sge in zip(placed, sges, strict=True)
            )
            owner = np.frombuffer(data or b"\0", np.uint8)
            wr.payload_offset = int(owner.ctypes.data)
            placed = []
        elif placed:
            wr.payload_offset = placed[0][0]
        if descriptor.remote is None:
            wr.key = descriptor.dest_qp_num << 48 | qp.number << 32 | descriptor.qkey
        else:
            self._aim(qp, wr, descriptor, descriptor.remote, sges)
        memory = tuple(memory for _, memory in placed)
        return CardRequest(
            qp, handle, op=op, length=length, req_ids=[descriptor.req_id], memory=memory, owner=owner, wr=wr
        )

    def _aim(
        self,
        qp: CardQueuePair,
        wr: WorkRequest,
        descriptor: io.SendDescriptor,
        remote: io.RemoteMemory,
        sges: list[io.Sge],
    ) -> None:
        """Give a write or a read its range at the responder, and a read its own. Raises RefusedEntryError."""
        if remote.length != wr.length:
            raise RefusedEntryError(Status.LOCAL_ERROR_BAD_LENGTH)
        if remote.address + remote.length > 1 << 64:
            raise RefusedEntryError(Status.REMOTE_ERROR_BAD_ADDRESS)
        wr.key = remote.rkey << 32 | descriptor.dest_qp_num << 16 | qp.number
        wr.offset = remote.address
        if descriptor.op == _READ:
            wr.payload_offset = 0
            if sges:
                wr.local_key, wr.local_offset = sges[0].lkey, sges[0].address

    def _process_run(self, qp: CardQueuePair, raw: bytes, run: WqeRun, *, size: int, phase: int) -> None:
        """Carry out a run of equal sends, entries of `size` bytes. What only some get wrong is found for each one."""
        first = raw[run.first * size : (run.first + 1) * size]
        try:
            request = self._plan(qp, self._decode_untrusted(first, phase=phase))
        except RefusedEntryError:
            request = None
        addresses = None if request is None else self._run_addresses(request, raw, run)
        if request is None or addresses is None:
            for index in range(run.first, run.first + run.length):
                self._process_one(qp, raw[index * size : (index + 1) * size], phase=phase)
            return
        request.req_ids = run.req_ids.tolist()
        request.addresses = addresses
        self._start(request)

    def _run_addresses(self, request: CardRequest, raw: bytes, run: WqeRun) -> npt.NDArray[np.uint64] | None:
        """Return where the payloads of a run lie; None: not all are valid, or they are of a kind that has no runs."""
        if request.op != _SEND or (not run.is_inline and len(request.memory) != 1):
            return None
        if run.is_inline:
            request.owner = np.frombuffer(raw, np.uint8)
            return run.addresses + np.uint64(request.owner.ctypes.data)
        memory = request.memory[0]
        low, high = int(run.addresses.min()), int(run.addresses.max())
        if memory.place(low, length=request.length) is None or memory.place(high, length=request.length) is None:
            return None
        return run.addresses - np.uint64(memory.iova) + np.uint64(memory.base)

    # -- posting ------------------------------------------------------------------------------------------------

    def _start(self, request: CardRequest) -> None:
        request.left = len(request.req_ids)
        for memory in request.memory:
            memory.uses += 1
        self._post(self._add(request), request)

    def _add(self, request: CardRequest) -> int:
        number = self._next
        self._next += 1
        self._open[number] = request
        request.qp.open_requests[number] = request.handle.open_requests[number] = None
        self.idle.clear()
        return number

    def _remove(self, number: int) -> CardRequest | None:
        request = self._open.pop(number, None)
        if request is not None:
            del request.qp.open_requests[number], request.handle.open_requests[number]
        if not self._open:
            self.idle.set()
        return request

    def _post(self, number: int, request: CardRequest) -> None:
        if request.is_cancelled:
            self._fail(number, request, Status.FLUSHED)
            return
        remote = request.handle.remote
        if (peer := remote.open_peer) is not None:
            self._post_to(peer, number, request)
        else:
            remote.post(
                lambda peer: self._post_to(peer, number, request),
                fail=lambda status: self._fail(number, request, status),
                number=number,
            )

    def _post_to(self, peer: int, number: int, request: CardRequest) -> None:
        if request.is_cancelled:
            self._fail(number, request, Status.FLUSHED)
            return
        request.peer = peer
        first = number << INDEX_BITS
        wr = request.wr
        try:
            if request.addresses is None:
                wr.request = first
                self._engine().post(peer, wr)
            elif request.length <= (request.handle.remote.packet_bytes or 0):
                batch = BatchRequest(
                    first, request.addresses, request.length, wr.immediate, owner=request.owner, key=wr.key
                )
                self._engine().post_batch(peer, batch)
            else:
                self._post_singly(peer, first, request)
        except UsageError:  # the peer is being closed
            self._fail(number, request, Status.REMOTE_ERROR_ABORT)

    def _post_singly(self, peer: int, first: int, request: CardRequest) -> None:
        wr = request.wr
        for index, address in enumerate(request.addresses.tolist() if request.addresses is not None else ()):
            single = WorkRequest(first + index, wr.length, address, immediate=wr.immediate, key=wr.key, flow=wr.flow)
            self._engine().post(peer, single)

    def _fail(self, number: int, request: CardRequest, status: Status) -> None:
        """End all of a request that was not posted, or whose peer takes nothing more."""
        if self._remove(number) is not None:
            if request.epoch == request.qp.epoch:
                self._complete_entries(
                    request.qp, request.req_ids[-request.left :], status=status, op=request.op, length=request.length
                )
            self._release(request, request.left)

    # -- completions ----------------------------------------------------------------------------------------------

    def on_completed(self, request: int, *, count: int, status: Status) -> None:
        """Process the transport's completion of `count` requests from number `request` on."""
        number, index = request >> INDEX_BITS, request & INDEX_MASK
        found = self._open.get(number)
        if found is None:
            return
        if status is Status.REMOTE_ERROR_RNR and self._retries(found):
            self._retry_later(found, index)
        elif found.epoch == found.qp.epoch:
            if status is Status.FLUSHED and not found.is_cancelled:  # its peer was given up: it is not allowed any more
                status = Status.LOCAL_ERROR_UNREACH_REMOTE
            req_ids = found.req_ids[index : index + count]
            self._complete_entries(found.qp, req_ids, status=status, op=found.op, length=found.length)
        self._release(found, count)
        if not found.left:
            self._remove(number)

    def _release(self, request: CardRequest, count: int) -> None:
        request.left -= count
        if not request.left:
            for memory in request.memory:
                memory.release()

    def _complete_entries(self, qp: CardQueuePair, req_ids: list[int], *, status: Status, op: int, length: int) -> None:
        if qp.is_destroyed or qp.sq is None:
            return
        qp.sq.complete(len(req_ids))
        if qp.is_blocked:
            self._vf.run_later(qp)
        self._count(op, len(req_ids), length, status)
        lane = io.tx_lane(0, status=status, qp_num=qp.number, op=op)
        if len(req_ids) == 1:
            qp.send_cq.push(lane | req_ids[0], 0)
            return
        lanes = np.array(req_ids, np.uint64) | np.uint64(lane)
        qp.send_cq.push_many(lanes, np.zeros(len(req_ids), np.uint64))

    def _count(self, op: int, count: int, length: int, status: Status) -> None:
        counters = self._vf.port
        if op == _SEND:
            if status is Status.OK:
                counters.send_wrs += count
                counters.send_bytes += count * length
        elif op == _READ:
            if status is Status.OK:
                counters.rdma_read_wrs += count
                counters.rdma_read_bytes += count * length
            else:
                counters.rdma_read_wr_err += count
        elif status is Status.OK:
            counters.rdma_write_wrs += count
            counters.rdma_write_bytes += count * length
        else:
            counters.rdma_write_wr_err += count

    # -- receiver not ready ---------------------------------------------------------------------------------------

    def _retries(self, request: CardRequest) -> bool:
        qp = request.qp
        if request.is_cancelled or qp.is_destroyed or request.epoch != qp.epoch:
            return False
        return qp.rnr_retry == RNR_RETRY_FOREVER or request.attempts < qp.rnr_retry

    def _retry_later(self, request: CardRequest, index: int) -> None:
        """Post one entry of a request again after a pause, as a request of its own."""
        wr = request.wr
        address = wr.payload_offset if request.addresses is None else int(request.addresses[index])
        single = WorkRequest(
            0, wr.length, address, wr.opcode, immediate=wr.immediate, key=wr.key, offset=wr.offset, flow=wr.flow
        )
        again = CardRequest(
            request.qp, request.handle, op=request.op, length=request.length, req_ids=[request.req_ids[index]],
            memory=request.memory, owner=request.owner, wr=single, attempts=request.attempts + 1,
        )  # fmt: skip
        again.left = 1
        for memory in again.memory:
            memory.uses += 1
        number = self._add(again)
        pause_s = min(RNR_PAUSE_S * (1 << min(request.attempts, 16)), MAX_RNR_PAUSE_S)
        again.timer = asyncio.get_running_loop().call_later(pause_s, self._retry, number, again)

    def _retry(self, number: int, request: CardRequest) -> None:
        request.timer = None
        self._due.append((number, request))
        self._vf.run_soon(self.post_due)

    def post_due(self) -> None:
        """Post a share of the requests whose pause is over."""
        for _ in range(min(len(self._due), RETRY_SHARE)):
            self._post(*self._due.popleft())
        if self._due:
            self._vf.run_soon(self.post_due)

    # -- cancelling -----------------------------------------------------------------------------------------------

    def cancel(self, numbers: Iterable[int]) -> None:
        """End requests with FLUSHED: the open ones of a queue pair, or to an address handle."""
        for number in list(numbers):
            if (request := self._open.get(number)) is None or request.is_cancelled:  # ended with one before it, or will
                continue
            request.is_cancelled = True
            if request.timer is not None:
                request.timer.cancel()
                self._fail(number, request, Status.FLUSHED)
            elif request.peer is not None:
                self._cancel_posted(number << INDEX_BITS, request)
            elif request.handle.remote.withdraw(number):
                self._fail(number, request, Status.FLUSHED)

    def _cancel_posted(self, first: int, request: CardRequest) -> None:
        engine = self._engine()
        if request.peer is None:
            return
        engine.cancel(request.peer, request=first)  # of a batch: all of it
        packet_bytes = request.handle.remote.packet_bytes or 0
        if request.addresses is not None and request.length > packet_bytes:
            for index in range(1, len(request.req_ids)):
                engine.cancel(request.peer, request=first + index)

    def flush(self, qp: CardQueuePair, raw: bytes) -> None:
        """Complete entries with FLUSHED: their queue pair is in the error state."""
        if qp.sq is None:
            return
        size = qp.sq.wqe_bytes
        for at in range(0, len(raw), size):
            op = raw[at + 2] & io.OP_MASK
            req_id = io.req_id_of(raw[at : at + 2])
            self._complete_entries(qp, [req_id], status=Status.FLUSHED, op=op, length=0)
