"""Queue pairs of SRD: reliable, unordered, each message at most once."""

from __future__ import annotations

import ctypes
import errno
import os
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from nitro_emu.efa.abi import commands, enums, io, limits, memory, replies
from nitro_emu.efa.abi.enums import QpState
from nitro_emu.efa.verbs.context import Queues
from nitro_emu.efa.verbs.cq import CompletionQueue
from nitro_emu.efa.verbs.link import expect
from nitro_emu.efa.verbs.qp_rules import SendRules, check_transition
from nitro_emu.efa.verbs.recv_queue import RecvRing
from nitro_emu.efa.verbs.request_ids import Numbers, U64Array
from nitro_emu.efa.verbs.resource import AddressHandle, ProtectionDomain, Resource
from nitro_emu.efa.verbs.send_builder import SendBuilder
from nitro_emu.efa.verbs.send_queue import SendRing, UdAddress
from nitro_emu.efa.verbs.shared import map_shared
from nitro_emu.efa.verbs.wr import RecvRequest, SendFlags, SendOps, SendRequest, WrOpcode
from nitro_emu.errors import VerbsError

_NO_OPS: Final = SendOps(0)
_NOT_RECEIVING: Final = frozenset({QpState.RESET, QpState.ERR})
_POSTED_OPS: Final = {WrOpcode.SEND: False, WrOpcode.SEND_WITH_IMM: True}  # with an immediate or not


@dataclass(frozen=True, slots=True)
class QpOptions:
    """What a queue pair is created with. Sizes are requests: `SendRing` and `RecvRing` have what there is."""

    max_send_wr: int = 1
    max_recv_wr: int = 1
    max_send_sge: int = 1
    max_recv_sge: int = 1
    max_inline_data: int = 0
    signal_all: bool = False
    """Whether requests need no SIGNALED flag. They complete visibly in any case."""
    send_ops: SendOps = _NO_OPS
    """What the builder may build."""
    unsolicited_write_recv: bool = False
    """Whether a write with immediate to this queue pair consumes no receive request."""
    inline_write: bool = False
    """Whether a write may have inline data, which takes WQEs of 128 bytes."""
    service_level: int = 0


@dataclass(frozen=True, slots=True)
class _Sizes:
    sq_depth: int
    wqe_bytes: int
    rq_depth: int
    max_send_sge: int
    max_recv_sge: int


class QueuePair(Resource):
    """A queue pair in state RESET. `number` is what others address it by; `builder` builds send requests."""

    def __init__(
        self, pd: ProtectionDomain, *, send_cq: CompletionQueue, recv_cq: CompletionQueue, options: QpOptions
    ) -> None:
        """Create it. Raises VerbsError: more than the device has (EINVAL)."""
        context = pd.context
        self.pd, self.send_cq, self.recv_cq, self.options = pd, send_cq, recv_cq, options
        sizes = _sizes(options, device=context.attributes.queue, wide_inline_bytes=context.attributes.wide_inline_bytes)
        command = commands.CreateQp(
            pd=pd.number,
            qp_type=enums.QpType.SRD,
            flags=enums.CreateQpFlag.UNSOLICITED_WRITE_RECV if options.unsolicited_write_recv else 0,
            send_cq_idx=send_cq.number,
            recv_cq_idx=recv_cq.number,
            send_queue_ring_size=sizes.sq_depth * sizes.wqe_bytes,
            send_queue_depth=sizes.sq_depth,
            recv_queue_ring_size=sizes.rq_depth * io.RX_DESC_BYTES,
            recv_queue_depth=sizes.rq_depth,
            uar=context.link.uar,
            sl=options.service_level,
        )
        reply, (fd,) = context.link.create(
            command, kind=replies.CreateQpReply, fds=1, destroy=lambda made: commands.DestroyQp(made.qp_handle)
        )
        self.handle, self.number = reply.qp_handle, reply.qp_num
        self.rules = SendRules(context.link, signal_all=options.signal_all, ops=options.send_ops)
        self._forget: Callable[[], object] = lambda: None  # `release` may be called from now on: its link has this one
        super().__init__(context.link, destroy=commands.DestroyQp(self.handle))
        self._map(fd, reply=reply, sizes=sizes)
        self.builder = SendBuilder(self.send_queue, rules=self.rules, inline_write=options.inline_write)
        queues = context.queues[self.number] = Queues(self.send_queue, self.recv_queue)
        self._forget = weakref.finalize(self, _forget, context.queues, self.number, queues)

    def _map(self, fd: int, *, reply: replies.CreateQpReply, sizes: _Sizes) -> None:
        link, generation = self._link, self.pd.context.next_generation()
        needed = memory.ring_bytes(sq_depth=sizes.sq_depth, wqe_bytes=sizes.wqe_bytes, rq_depth=sizes.rq_depth)
        try:
            ring = map_shared(fd, size_bytes=needed, writable=True)
        finally:
            os.close(fd)
        self.send_queue = SendRing(
            ring,
            depth=sizes.sq_depth,
            wqe_bytes=sizes.wqe_bytes,
            max_sges=sizes.max_send_sge,
            max_inline_bytes=self.options.max_inline_data,
            doorbell=link.doorbell(reply.sq_db_offset),
            generation=generation,
        )
        self.recv_queue = RecvRing(
            ring,
            offset=memory.rq_offset(sizes.sq_depth, wqe_bytes=sizes.wqe_bytes),
            depth=sizes.rq_depth,
            max_sges=sizes.max_recv_sge,
            doorbell=link.doorbell(reply.rq_db_offset),
            generation=generation,
        )

    # -- state ------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> QpState:
        """The state that it was last brought into; `query` asks the card."""
        return self.rules.state

    def query(self) -> replies.QueryQpReply:
        """Ask the card for the state. Raises VerbsError."""
        self._check()
        return expect(self._link.ask(commands.QueryQp(self.handle)), kind=replies.QueryQpReply)

    def modify(
        self,
        state: QpState | None = None,
        *,
        current_state: QpState | None = None,
        qkey: int | None = None,
        sq_psn: int | None = None,
        rnr_retry: int | None = None,
        pkey_index: int | None = None,
        port: int | None = None,
        notify_drained: bool | None = None,
    ) -> None:
        """Change what is given. Raises VerbsError (EINVAL) for what does not belong to this change of state."""
        self._check()
        given = {
            enums.ModifyMask.QP_STATE: state,
            enums.ModifyMask.CUR_QP_STATE: current_state,
            enums.ModifyMask.QKEY: qkey,
            enums.ModifyMask.SQ_PSN: sq_psn,
            enums.ModifyMask.SQ_DRAINED_ASYNC_NOTIFY: notify_drained,
            enums.ModifyMask.RNR_RETRY: rnr_retry,
        }
        mask = enums.ModifyMask(0)
        for bit, value in given.items():
            if value is not None:
                mask |= bit
        before = self.state if current_state is None else current_state
        after = before if state is None else state
        check_transition(before, after, given=mask, pkey_index=pkey_index, port=port)
        if rnr_retry is not None and not self.pd.context.attributes.caps & enums.DeviceCap.RNR_RETRY:
            raise VerbsError(errno.EOPNOTSUPP, "this device has no rnr_retry")
        values = [int(value or 0) for value in given.values()]
        self._link.do(commands.ModifyQp(int(mask), self.handle, *values))
        if state is not None:
            self._enter(state)

    def _enter(self, state: QpState) -> None:
        self.rules.state = state
        if state == QpState.RESET:
            generation = self.pd.context.next_generation()
            self.send_queue.reset(generation)
            self.recv_queue.reset(generation)

    def to_rts(self, *, qkey: int, sq_psn: int = 0, rnr_retry: int | None = None) -> None:
        """Bring it from RESET to RTS. Raises VerbsError."""
        self.modify(QpState.INIT, qkey=qkey, pkey_index=0, port=1)
        self.modify(QpState.RTR)
        self.modify(QpState.RTS, sq_psn=sq_psn, rnr_retry=rnr_retry)

    # -- requests ---------------------------------------------------------------------------------------------------

    def post_send(self, *requests: SendRequest) -> None:
        """Post SENDs with one doorbell, as `post_send_chain` does."""
        self.post_send_chain(requests)

    def post_send_chain(self, requests: Iterable[SendRequest]) -> None:
        """Post SENDs, and ring once. Raises VerbsError for the first that cannot be posted; those before it are."""
        with self.send_queue.lock:
            try:
                for request in requests:
                    self._write_send(request)
            finally:
                if not self.rules.closed:
                    self.send_queue.ring()

    def _write_send(self, request: SendRequest) -> None:
        self.rules.check(request.flags)
        if (with_immediate := _POSTED_OPS.get(request.opcode)) is None:
            raise VerbsError(errno.EINVAL, f"post_send does not know {request.opcode!r}; use the builder")
        queue = self.send_queue
        is_inline = request.flags & SendFlags.INLINE
        if is_inline and sum(sge.length for sge in request.sges) > queue.max_inline_bytes:
            raise VerbsError(errno.EINVAL, f"more inline data than the {queue.max_inline_bytes} bytes asked for")
        if not is_inline and len(request.sges) > queue.max_sges:
            raise VerbsError(errno.EINVAL, f"{len(request.sges)} buffers, at most {queue.max_sges} are possible")
        draft = queue.reserve(request.wr_id)
        draft.destination = UdAddress(request.ah.number, request.remote_qpn, request.remote_qkey)
        draft.immediate = request.immediate if with_immediate else None
        if is_inline:
            draft.data = b"".join(ctypes.string_at(sge.address, sge.length) for sge in request.sges)
        else:
            draft.sges = request.sges
        try:
            queue.write(draft)
        except VerbsError:
            queue.roll_back([draft])
            raise

    def post_recv(self, *requests: RecvRequest) -> None:
        """Post receive requests with one doorbell, as `post_recv_chain` does."""
        self.post_recv_chain(requests)

    def post_recv_chain(self, requests: Iterable[RecvRequest]) -> None:
        """Post receive requests, and ring once. Raises VerbsError for the first that cannot be; those before it are."""
        self._check_receiving()
        queue = self.recv_queue
        with queue.lock:
            try:
                for request in requests:
                    queue.post(request.wr_id, sges=request.sges)
            finally:
                queue.ring()

    # -- many requests at a time ------------------------------------------------------------------------------------

    def post_sends(
        self,
        ah: AddressHandle,
        *,
        remote_qpn: int,
        remote_qkey: int,
        addresses: Numbers,
        lengths: Numbers,
        lkey: int,
        wr_ids: U64Array | Iterable[int],
        immediate: int | None = None,
    ) -> None:
        """Post SENDs of one buffer each, as many as `wr_ids`, with one doorbell. Raises VerbsError, and posts none.

        `addresses` and `lengths` are arrays, or a number for all.
        """
        self.post_rdma(
            io.SendOp.SEND, ah, remote_qpn=remote_qpn, remote_qkey=remote_qkey, addresses=addresses, lengths=lengths,
            lkey=lkey, wr_ids=wr_ids, immediate=immediate,
        )  # fmt: skip

    def post_rdma(
        self,
        op: io.SendOp,
        ah: AddressHandle,
        *,
        remote_qpn: int,
        remote_qkey: int,
        addresses: Numbers,
        lengths: Numbers,
        lkey: int,
        remote_addresses: Numbers = 0,
        rkey: int = 0,
        wr_ids: U64Array | Iterable[int],
        immediate: int | None = None,
    ) -> None:
        """Post READs or WRITEs, as `post_sends` does SENDs."""
        self.rules.check(SendFlags.SIGNALED)
        with self.send_queue.lock:
            self.send_queue.post_many(
                op,
                destination=UdAddress(ah.number, remote_qpn, remote_qkey),
                addresses=addresses,
                lengths=lengths,
                lkey=lkey,
                wr_ids=np.asarray(wr_ids, np.uint64),
                immediate=immediate,
                remote_addresses=remote_addresses,
                rkey=rkey,
            )

    def post_recvs(
        self,
        addresses: Numbers,
        *,
        lengths: Numbers,
        lkey: int,
        wr_ids: U64Array | Iterable[int],
    ) -> None:
        """Post receive requests of one buffer each, as many as `wr_ids`, with one doorbell. Raises VerbsError."""
        self._check_receiving()
        with self.recv_queue.lock:
            self.recv_queue.post_many(addresses, lengths=lengths, lkey=lkey, wr_ids=np.asarray(wr_ids, np.uint64))

    # -- the rest ---------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        self._link.check()
        if self.closed:
            raise VerbsError(errno.EINVAL, "the queue pair is closed")

    def _check_receiving(self) -> None:
        self._check()
        if self.state in _NOT_RECEIVING:
            raise VerbsError(errno.EINVAL, f"the queue pair is in state {self.state.name}, which receives nothing")

    def release(self) -> None:
        """Release the rings. Completions of this queue pair that are still to be polled are dropped."""
        super().release()
        self.rules.closed = True
        self._forget()


def _forget(table: dict[int, Queues], number: int, queues: Queues) -> None:
    """Remove a queue pair's queues, unless another one has its number already."""
    if table.get(number) is queues:
        del table[number]


def _sizes(options: QpOptions, *, device: replies.QueueAttr, wide_inline_bytes: int) -> _Sizes:
    """Return what to ask the card for. Raises VerbsError for more than it has."""
    wide = options.inline_write or options.max_inline_data > device.inline_buf_size
    wqe_bytes = limits.WIDE_WQE_BYTES if wide else limits.WQE_BYTES
    send_sge, recv_sge = max(options.max_send_sge, 1), max(options.max_recv_sge, 1)
    sq_depth = _power_of_two(max(options.max_send_wr, device.min_sq_depth, 1))
    rq_depth = _power_of_two(options.max_recv_wr * recv_sge) if options.max_recv_wr else 0
    bounds = {
        "max_inline_data": (options.max_inline_data, max(device.inline_buf_size, wide_inline_bytes)),
        "max_send_sge": (options.max_send_sge, device.max_wr_send_sges),
        "max_recv_sge": (options.max_recv_sge, device.max_wr_recv_sges),
        "max_send_wr": (sq_depth, min(device.max_sq_depth, device.max_llq_size // wqe_bytes)),
        "max_recv_wr": (rq_depth, device.max_rq_depth),
    }
    for name, (value, most) in bounds.items():
        if not 0 <= value <= most:
            raise VerbsError(errno.EINVAL, f"{name}: {value} is not within 0 and {most}")
    return _Sizes(sq_depth, wqe_bytes, rq_depth, send_sge, recv_sge)


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()
