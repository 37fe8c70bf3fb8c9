"""Queue pairs. An EFA device has those of SRD only, which `pyverbs.providers.efa.efadv` creates."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Callable, Iterator, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any, Final

from nitro_emu.efa import verbs
from nitro_emu.efa.abi.io import SendOp
from nitro_emu.efa.abi.limits import MAX_RDMA_SGES
from nitro_emu.efa.verbs.send_queue import Draft, UdAddress
from nitro_emu.errors import VerbsError
from pyverbs.addr import AH
from pyverbs.base import PyverbsCM, PyverbsObject, translated
from pyverbs.cq import CQ, CQEX
from pyverbs.libibverbs_enums import ibv_qp_attr_mask, ibv_qp_state, ibv_qp_type, ibv_send_flags
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError, PyverbsRDMAError
from pyverbs.wr import SGE, RecvWR, SendWR

_MODIFIABLE: Final = int(
    ibv_qp_attr_mask.IBV_QP_STATE
    | ibv_qp_attr_mask.IBV_QP_CUR_STATE
    | ibv_qp_attr_mask.IBV_QP_EN_SQD_ASYNC_NOTIFY
    | ibv_qp_attr_mask.IBV_QP_PKEY_INDEX
    | ibv_qp_attr_mask.IBV_QP_PORT
    | ibv_qp_attr_mask.IBV_QP_QKEY
    | ibv_qp_attr_mask.IBV_QP_SQ_PSN
    | ibv_qp_attr_mask.IBV_QP_RNR_RETRY
)


@dataclass(eq=False)
class QPCap(PyverbsObject):
    """Sizes of a queue pair."""

    max_send_wr: int = 1
    max_recv_wr: int = 10
    max_send_sge: int = 1
    max_recv_sge: int = 1
    max_inline_data: int = 0


@dataclass(eq=False)
class QPInitAttr(PyverbsObject):
    """What a queue pair is created from."""

    qp_type: int = ibv_qp_type.IBV_QPT_UD
    qp_context: object = None
    scq: InitVar[CQ | CQEX | None] = None
    rcq: InitVar[CQ | CQEX | None] = None
    srq: object = None
    cap: QPCap = field(default_factory=QPCap)
    sq_sig_all: int = 1

    def __post_init__(self, scq: CQ | CQEX | None, rcq: CQ | CQEX | None) -> None:
        self.send_cq = scq
        self.recv_cq = rcq


@dataclass(eq=False)
class QPInitAttrEx(QPInitAttr):
    """What a queue pair is created from, extended. What `comp_mask` does not name is ignored."""

    sq_sig_all: int = 0
    comp_mask: int = 0
    pd: PD | None = None
    xrcd: object = None
    create_flags: int = 0
    max_tso_header: int = 0
    source_qpn: int = 0
    hash_conf: object = None
    ind_table: object = None
    send_ops_flags: int = 0


@dataclass(eq=False)
class QPAttr(PyverbsObject):
    """What can be changed, or asked for."""

    qp_state: int = ibv_qp_state.IBV_QPS_INIT
    cur_qp_state: int = ibv_qp_state.IBV_QPS_RESET
    port_num: int = 1
    path_mtu: int = 1024
    qkey: int = field(default=0, init=False)
    pkey_index: int = field(default=0, init=False)
    dest_qp_num: int = field(default=0, init=False)
    sq_psn: int = field(default=0, init=False)
    rq_psn: int = field(default=0, init=False)
    rnr_retry: int = field(default=0, init=False)
    en_sqd_async_notify: int = field(default=0, init=False)
    cap: QPCap = field(default_factory=QPCap, init=False)


class QP(PyverbsCM):
    """A queue pair."""

    def __init__(self, creator: PD, init_attr: QPInitAttr, qp_attr: QPAttr | None = None) -> None:  # noqa: ARG002
        raise PyverbsRDMAError(
            "Failed to create QP: an EFA device has SRD only; use pyverbs.providers.efa.efadv", errno.EOPNOTSUPP
        )

    def _create(self, pd: PD | None, init_attr: QPInitAttr, *, send_ops: int, unsolicited: bool, inline: bool) -> None:
        """Create the queue pair. Raises PyverbsRDMAError."""
        scq, rcq, cap = init_attr.send_cq, init_attr.recv_cq, init_attr.cap
        if pd is None or scq is None or rcq is None:
            raise PyverbsRDMAError("Failed to create QP: it needs a PD and two CQs", errno.EINVAL)
        if init_attr.srq is not None:
            raise PyverbsRDMAError("Failed to create QP: an EFA device has no SRQs", errno.EOPNOTSUPP)
        options = verbs.QpOptions(
            max_send_wr=cap.max_send_wr,
            max_recv_wr=cap.max_recv_wr,
            max_send_sge=cap.max_send_sge,
            max_recv_sge=cap.max_recv_sge,
            max_inline_data=cap.max_inline_data,
            signal_all=bool(init_attr.sq_sig_all),
            send_ops=verbs.SendOps(send_ops),
            unsolicited_write_recv=unsolicited,
            inline_write=inline,
        )
        with translated("Failed to create QP"):
            self.qp = verbs.QueuePair(pd.pd, send_cq=scq.cq, recv_cq=rcq.cq, options=options)
        self._init_attr = init_attr
        self.qp_type = init_attr.qp_type
        super().__init__(self.qp, pd, scq, rcq)

    @property
    def qp_num(self) -> int:
        """Its number."""
        return self.qp.number

    @property
    def qp_state(self) -> int:
        """Its state."""
        return self.qp.state

    def _cap(self) -> QPCap:
        send, recv = self.qp.send_queue, self.qp.recv_queue
        return QPCap(send.depth, recv.requests, send.max_sges, recv.max_sges, send.max_inline_bytes)

    def query(self, attr_mask: int) -> tuple[QPAttr, QPInitAttr]:  # noqa: ARG002 - all is returned
        """Return its attributes, with the sizes that it has."""
        with translated("Failed to query QP"):
            reply = self.qp.query()
        attr = QPAttr(qp_state=reply.qp_state, cur_qp_state=reply.qp_state)
        attr.qkey, attr.sq_psn, attr.rnr_retry = reply.qkey, reply.sq_psn, reply.rnr_retry
        attr.cap = self._cap()
        asked = self._init_attr
        init = QPInitAttr(
            asked.qp_type, asked.qp_context, asked.send_cq, asked.recv_cq, None, self._cap(), asked.sq_sig_all
        )
        return attr, init

    def modify(self, qp_attr: QPAttr, comp_mask: int) -> None:
        """Change what `comp_mask` names."""
        if comp_mask & ~_MODIFIABLE:
            raise PyverbsRDMAError("Failed to modify QP: an EFA device cannot change that", errno.EOPNOTSUPP)
        masks = ibv_qp_attr_mask

        def given(mask: int, value: int) -> int | None:
            return int(value) if comp_mask & mask else None

        state = given(masks.IBV_QP_STATE, qp_attr.qp_state)
        current = given(masks.IBV_QP_CUR_STATE, qp_attr.cur_qp_state)
        notify = given(masks.IBV_QP_EN_SQD_ASYNC_NOTIFY, qp_attr.en_sqd_async_notify)
        with translated("Failed to modify QP"):
            self.qp.modify(
                None if state is None else verbs.QpState(state),
                current_state=None if current is None else verbs.QpState(current),
                qkey=given(masks.IBV_QP_QKEY, qp_attr.qkey),
                sq_psn=given(masks.IBV_QP_SQ_PSN, qp_attr.sq_psn),
                rnr_retry=given(masks.IBV_QP_RNR_RETRY, qp_attr.rnr_retry),
                pkey_index=given(masks.IBV_QP_PKEY_INDEX, qp_attr.pkey_index),
                port=given(masks.IBV_QP_PORT, qp_attr.port_num),
                notify_drained=None if notify is None else bool(notify),
            )

    def to_init(self, qp_attr: QPAttr) -> None:
        """Bring it to INIT."""
        self._to(
            ibv_qp_state.IBV_QPS_INIT,
            qp_attr,
            ibv_qp_attr_mask.IBV_QP_PKEY_INDEX | ibv_qp_attr_mask.IBV_QP_PORT | ibv_qp_attr_mask.IBV_QP_QKEY,
        )

    def to_rtr(self, qp_attr: QPAttr) -> None:
        """Bring it through INIT to RTR."""
        self.to_init(qp_attr)
        self._to(ibv_qp_state.IBV_QPS_RTR, qp_attr, 0)

    def to_rts(self, qp_attr: QPAttr) -> None:
        """Bring it through INIT and RTR to RTS."""
        self.to_rtr(qp_attr)
        self._to(ibv_qp_state.IBV_QPS_RTS, qp_attr, ibv_qp_attr_mask.IBV_QP_SQ_PSN)

    def _to(self, state: int, qp_attr: QPAttr, mask: int) -> None:
        qp_attr.qp_state = state
        self.modify(qp_attr, mask | ibv_qp_attr_mask.IBV_QP_STATE)

    def post_recv(self, wr: RecvWR, bad_wr: RecvWR | None = None) -> None:
        """Post receive requests: `wr` and those that follow it. Copies the first that fails into `bad_wr`."""
        _post_chain(self.qp.post_recv_chain, wr, bad_wr, what="recv")

    def post_send(self, wr: SendWR, bad_wr: SendWR | None = None) -> None:
        """Post SENDs: `wr` and those that follow it. Copies the first that fails into `bad_wr`."""
        _post_chain(self.qp.post_send_chain, wr, bad_wr, what="send")


class QPEx(QP):
    """A queue pair with the builder of send requests: `wr_start`, ..., `wr_complete`.

    Between these two, any number of requests, each begun by its operation. The first error sticks: the calls after it
    have no effect, and `wr_complete` raises it. The send queue is locked meanwhile. Immediates are in host order.
    """

    ind_table = None

    def _create(self, pd: PD | None, init_attr: QPInitAttr, *, send_ops: int, unsolicited: bool, inline: bool) -> None:
        super()._create(pd, init_attr, send_ops=send_ops, unsolicited=unsolicited, inline=inline)
        self.wr_id = 0
        """The id of the requests that follow."""
        self.wr_flags = int(ibv_send_flags.IBV_SEND_SIGNALED)
        """Their flags; IBV_SEND_INLINE is ignored, as `wr_set_inline_data` says it."""
        self._is_building = False
        self._drafts: list[Draft] = []
        self._error: VerbsError | None = None

    def wr_start(self) -> None:
        """Begin."""
        self.qp.send_queue.lock.acquire()
        if self._is_building:
            self.qp.send_queue.lock.release()
            raise PyverbsRDMAError("A session of work requests is open; complete or abort it", errno.EINVAL)
        self._is_building, self._drafts, self._error = True, [], None

    def wr_complete(self) -> None:
        """Post what has been built with one doorbell; or raise the first error, and post nothing."""
        self._check_building()
        queue = self.qp.send_queue
        try:
            with translated("Failed to complete work requests"):
                if self._error is not None:
                    raise self._error
                self.qp.rules.check_open()  # it may have been closed since they were begun
                for draft in self._drafts:
                    queue.write(draft)
        except PyverbsRDMAError:
            queue.roll_back(self._drafts)
            raise
        else:
            if self._drafts:
                queue.ring()
        finally:
            self._end()

    def wr_abort(self) -> None:
        """Post nothing."""
        self._check_building()
        self.qp.send_queue.roll_back(self._drafts)
        self._end()

    def wr_send(self) -> None:
        """Begin a SEND."""
        self._begin(SendOp.SEND, needs=verbs.SendOps.SEND)

    def wr_send_imm(self, data: int) -> None:
        """Begin a SEND with an immediate."""
        self._begin(SendOp.SEND, needs=verbs.SendOps.SEND_WITH_IMM, immediate=data)

    def wr_rdma_read(self, rkey: int, remote_addr: int) -> None:
        """Begin a READ."""
        self._begin(SendOp.RDMA_READ, needs=verbs.SendOps.RDMA_READ, remote=(rkey, remote_addr))

    def wr_rdma_write(self, rkey: int, remote_addr: int) -> None:
        """Begin a WRITE."""
        self._begin(SendOp.RDMA_WRITE, needs=verbs.SendOps.RDMA_WRITE, remote=(rkey, remote_addr))

    def wr_rdma_write_imm(self, rkey: int, remote_addr: int, data: int) -> None:
        """Begin a WRITE with an immediate."""
        needs = verbs.SendOps.RDMA_WRITE_WITH_IMM
        self._begin(SendOp.RDMA_WRITE, needs=needs, remote=(rkey, remote_addr), immediate=data)

    def wr_set_ud_addr(self, ah: AH, remote_qpn: int, remote_rkey: int) -> None:
        """Set where the request goes."""
        if (draft := self._current()) is not None:
            draft.destination = UdAddress(ah.handle.number, remote_qpn, remote_rkey)

    def wr_set_sge(self, sge: SGE) -> None:
        """Set the request's only buffer."""
        self.wr_set_sge_list(1, [sge])

    def wr_set_sge_list(self, num_sge: int, sg_list: Sequence[SGE]) -> None:
        """Set the request's buffers."""
        if (draft := self._current()) is not None:
            most = self.qp.send_queue.max_sges if draft.remote is None else MAX_RDMA_SGES
            draft.sges = tuple(sge.verbs() for sge in sg_list[:num_sge])
            if len(draft.sges) > most:
                self._fail(f"{len(draft.sges)} buffers, at most {most} are possible")

    def wr_set_inline_data(self, addr: int, length: int) -> None:
        """Set the request's payload, which is copied from memory."""
        if (draft := self._current()) is None:
            return
        most = self.qp.send_queue.max_inline_bytes
        if length > most:
            self._fail(f"{length} bytes inline, the queue pair was created for {most}")
        elif draft.op == SendOp.RDMA_READ or (draft.op == SendOp.RDMA_WRITE and not self.qp.options.inline_write):
            self._fail(f"{draft.op.name} has no inline data here")
        else:
            draft.data = ctypes.string_at(addr, length)

    def _begin(
        self,
        op: SendOp,
        *,
        needs: verbs.SendOps,
        remote: tuple[int, int] | None = None,
        immediate: int | None = None,
    ) -> None:
        """Begin a request, for which the queue pair must have been created with `needs`."""
        self._check_building()
        if self._error is not None:
            return
        if not self.qp.options.send_ops & needs:
            self._fail(f"the queue pair was not created for {needs.name}", number=errno.EOPNOTSUPP)
            return
        try:
            self.qp.rules.check(int(self.wr_flags) & ~int(ibv_send_flags.IBV_SEND_INLINE))
            draft = self.qp.send_queue.reserve(self.wr_id)
        except VerbsError as error:
            self._error = error
        else:
            draft.op, draft.immediate, draft.remote = op, immediate, remote
            self._drafts.append(draft)

    def _current(self) -> Draft | None:
        """Return the request that is being built; None after an error."""
        self._check_building()
        if self._error is None and not self._drafts:
            self._fail("no request has been begun")
        return self._drafts[-1] if self._error is None else None

    def _fail(self, reason: str, *, number: int = errno.EINVAL) -> None:
        self._error = VerbsError(number, reason)

    def _check_building(self) -> None:
        if not self._is_building:
            raise PyverbsRDMAError("No session of work requests is open; start one", errno.EINVAL)

    def _end(self) -> None:
        self._is_building, self._drafts, self._error = False, [], None
        self.qp.send_queue.lock.release()


def _post_chain(
    post: Callable[[Iterator[Any]], None], first: RecvWR | SendWR, bad_wr: RecvWR | SendWR | None, *, what: str
) -> None:
    """Post a request and those that follow it, with one doorbell; copy the first that fails."""
    current: RecvWR | SendWR | None = first

    def chain() -> Iterator[Any]:
        nonlocal current
        while current is not None:
            yield current.verbs()
            current = current.next_wr

    try:
        with translated(f"Failed to post {what}"):
            post(chain())
    except PyverbsError:
        if current is not None and bad_wr is not None:
            vars(bad_wr).update(vars(current))
        raise
