"""The builder of send requests: what it builds, and that a session is posted as a whole or not at all."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pyverbs import cq, qp, wr
from pyverbs import libibverbs_enums as e
from pyverbs.providers.efa import efa_enums, efadv
from pyverbs.pyverbs_error import PyverbsRDMAError

from nitro_emu.efa.abi.io import RemoteMemory, SendDescriptor, SendOp
from tests.nitro_emu.efa.pyverbs.objects import QKEY, attr, cq_of, error_of, init_attr, qp_of
from tests.patience import PATIENCE_S

SIGNALED, INLINE = e.ibv_send_flags.IBV_SEND_SIGNALED, e.ibv_send_flags.IBV_SEND_INLINE


@pytest.fixture(autouse=True)
def two_buffers(rig: SimpleNamespace) -> None:
    """The queue pair may have two buffers a request, and 8 requests."""
    rig.qp = with_queue_pair(rig, max_send_sge=2)


def with_queue_pair(rig: SimpleNamespace, *, flags: int = 0, ops: int = 31, **cap: Any) -> efadv.SRDQPEx:
    efa = efadv.EfaQPInitAttr()
    efa.flags = flags
    sizes = qp.QPCap(**{"max_send_wr": 5, "max_recv_wr": 5, "max_inline_data": 32, **cap})
    made = efadv.SRDQPEx(rig.ctx, init_attr(rig.cq, rig.pd, cap=sizes, send_ops_flags=ops), efa)
    made.to_rts(attr())
    return made


def sge(rig: SimpleNamespace, length: int = 10) -> wr.SGE:
    return wr.SGE(rig.mr.buf, length, rig.mr.lkey)


def build_send(rig: SimpleNamespace, *, wr_id: int = 1) -> None:
    rig.qp.wr_id = wr_id
    rig.qp.wr_send()
    rig.qp.wr_set_ud_addr(rig.ah, 7, QKEY)
    rig.qp.wr_set_sge(sge(rig))


def post(rig: SimpleNamespace, *wr_ids: int) -> None:
    """Post SENDs without the builder."""
    chain = None
    for wr_id in reversed(wr_ids):
        chain = wr.SendWR(wr_id=wr_id, num_sge=1, sg=[sge(rig)], next_wr=chain)
        chain.set_wr_ud(rig.ah, 7, QKEY)
    rig.qp.post_send(chain)


def sent(rig: SimpleNamespace) -> list[SendDescriptor]:
    found: list[SendDescriptor] = rig.card.take_sends(qp_of(rig))
    return found


def completed(rig: SimpleNamespace) -> list[int]:
    """Have the card complete what was posted; return the ids."""
    for wqe in sent(rig):
        rig.card.complete_send(cq_of(rig), qp_of(rig), wqe.req_id)
    ids = []
    found = rig.cq.start_poll(cq.PollCqAttr())
    while not found:
        ids.append(rig.cq.wr_id)
        found = rig.cq.poll_next()
    rig.cq.end_poll()
    return ids


def test_a_session_of_every_operation(rig: SimpleNamespace) -> None:
    pair = rig.qp
    rig.mr.write("inline", 6)
    pair.wr_start()
    build_send(rig)
    pair.wr_flags = SIGNALED | INLINE
    pair.wr_send_imm(5)
    pair.wr_set_inline_data(rig.mr.buf, 6)
    pair.wr_rdma_read(0xAAAA, 1 << 40)
    pair.wr_set_sge(sge(rig, 100))
    pair.wr_rdma_write(0xBBBB, 2 << 40)
    pair.wr_set_sge_list(1, [sge(rig, 200), sge(rig)])
    pair.wr_rdma_write_imm(0xCCCC, 3 << 40, 6)
    pair.wr_set_ud_addr(rig.ah, 8, QKEY)
    pair.wr_set_sge(sge(rig, 300))
    pair.wr_set_processing_hints(1)
    assert sent(rig) == []
    pair.wr_complete()
    send, inline, read, write, write_imm = sent(rig)
    ah = rig.ah.handle.number
    assert (send.op, send.sges, send.dest_qp_num, send.qkey, send.ah) == (SendOp.SEND, (sge(rig).verbs(),), 7, QKEY, ah)
    assert (inline.data, inline.inline, inline.has_imm, inline.immediate) == (b"inline", True, True, 5)
    assert (read.op, read.remote) == (SendOp.RDMA_READ, RemoteMemory(0xAAAA, 1 << 40, 100))
    assert read.sges == (sge(rig, 100).verbs(),)
    assert (write.op, write.remote, write.has_imm) == (SendOp.RDMA_WRITE, RemoteMemory(0xBBBB, 2 << 40, 200), False)
    assert (write_imm.immediate, write_imm.has_imm, write_imm.dest_qp_num, write_imm.hints) == (6, True, 8, 1)
    assert all(wqe.comp_req for wqe in (send, inline, read, write, write_imm))


def test_inline_writes_need_wide_entries(rig: SimpleNamespace) -> None:
    rig.qp = with_queue_pair(rig, flags=efa_enums.EFADV_QP_FLAGS_INLINE_WRITE, max_inline_data=80)
    rig.mr.write(bytes(range(80)), 80)
    rig.qp.wr_start()
    rig.qp.wr_rdma_write(1, 2)
    rig.qp.wr_set_inline_data(rig.mr.buf, 80)
    rig.qp.wr_complete()
    (wqe,) = sent(rig)
    assert (wqe.data, wqe.remote) == (bytes(range(80)), RemoteMemory(1, 2, 80))


def begin_unsignaled(pair: Any, flags: int) -> None:
    pair.wr_flags = flags
    pair.wr_send()


def begin_many(pair: Any) -> None:
    for _ in range(8):
        pair.wr_send()


FAILURES: list[tuple[Callable[[Any, SimpleNamespace], object], int]] = [
    (lambda pair, rig: (pair.wr_send(), pair.wr_set_inline_data(rig.mr.buf, 33)), errno.EINVAL),
    (lambda pair, rig: (pair.wr_rdma_read(1, 1), pair.wr_set_inline_data(rig.mr.buf, 1)), errno.EINVAL),
    (lambda pair, rig: (pair.wr_rdma_write(1, 1), pair.wr_set_inline_data(rig.mr.buf, 1)), errno.EINVAL),
    (lambda pair, rig: (pair.wr_send(), pair.wr_set_sge_list(3, [sge(rig)] * 3)), errno.EINVAL),
    (lambda pair, rig: (pair.wr_rdma_read(1, 1), pair.wr_set_sge_list(2, [sge(rig)] * 2)), errno.EINVAL),
    (lambda pair, _: (pair.wr_send(), pair.wr_set_sge(wr.SGE(-1, 1, 1))), errno.EINVAL),
    *[
        (lambda pair, _, flags=flags: begin_unsignaled(pair, flags), errno.EINVAL)
        for flags in (0, 1, 4, SIGNALED | 1, SIGNALED | 1 << 10)
    ],
    (lambda pair, _: begin_many(pair), errno.ENOMEM),
]


@pytest.mark.parametrize(("failure", "number"), FAILURES)
def test_the_first_error_sticks_and_nothing_is_posted(
    rig: SimpleNamespace, failure: Callable[[Any, SimpleNamespace], object], number: int
) -> None:
    post(rig, *range(5))
    completed(rig)  # so that the session wraps
    rig.qp.wr_start()
    build_send(rig)
    failure(rig.qp, rig)
    rig.qp.wr_flags = SIGNALED
    build_send(rig)  # without effect
    assert error_of(rig.qp.wr_complete) == number
    assert sent(rig) == []
    assert rig.qp.qp.send_queue.free == 8
    for wr_id in range(20):
        rig.qp.wr_start()
        build_send(rig, wr_id=wr_id)
        rig.qp.wr_complete()
        assert completed(rig) == [wr_id]


@pytest.mark.parametrize(
    "operation",
    [
        lambda pair: pair.wr_send_imm(1),
        lambda pair: pair.wr_rdma_read(1, 1),
        lambda pair: pair.wr_rdma_write(1, 1),
        lambda pair: pair.wr_rdma_write_imm(1, 1, 1),
    ],
)
def test_what_the_queue_pair_was_not_created_for(rig: SimpleNamespace, operation: Callable[[Any], None]) -> None:
    pair = with_queue_pair(rig, ops=e.ibv_qp_create_send_ops_flags.IBV_QP_EX_WITH_SEND)
    pair.wr_start()
    operation(pair)
    assert error_of(pair.wr_complete) == errno.EOPNOTSUPP


def test_the_state_is_checked_and_reported_at_the_end(rig: SimpleNamespace) -> None:
    rig.qp.modify(qp.QPAttr(qp_state=e.ibv_qp_state.IBV_QPS_RESET), e.ibv_qp_attr_mask.IBV_QP_STATE)
    rig.qp.wr_start()
    build_send(rig)
    assert error_of(rig.qp.wr_complete) == errno.EINVAL


def test_completions_within_a_session_that_is_aborted(rig: SimpleNamespace) -> None:
    post(rig, *range(4))
    for wqe in sent(rig):
        rig.card.complete_send(cq_of(rig), qp_of(rig), wqe.req_id)
    rig.qp.wr_start()
    build_send(rig, wr_id=10)
    build_send(rig, wr_id=11)
    assert completed(rig) == [0, 1, 2, 3]
    rig.qp.wr_abort()
    assert sent(rig) == []
    assert rig.qp.qp.send_queue.free == 8
    post(rig, *range(8))
    assert len({wqe.req_id for wqe in sent(rig)}) == 8


def test_an_empty_session(rig: SimpleNamespace) -> None:
    rig.qp.wr_start()
    rig.qp.wr_complete()
    assert sent(rig) == []


def test_sessions_do_not_nest(rig: SimpleNamespace) -> None:
    rig.qp.wr_start()
    with pytest.raises(PyverbsRDMAError, match="is open"):
        rig.qp.wr_start()
    build_send(rig)
    rig.qp.wr_complete()
    assert len(sent(rig)) == 1


@pytest.mark.parametrize("call", [qp.QPEx.wr_send, qp.QPEx.wr_complete, qp.QPEx.wr_abort])
def test_nothing_without_a_session(rig: SimpleNamespace, call: Callable[[qp.QPEx], None]) -> None:
    assert error_of(lambda: call(rig.qp)) == errno.EINVAL


def test_a_buffer_without_a_request(rig: SimpleNamespace) -> None:
    rig.qp.wr_start()
    rig.qp.wr_set_sge(sge(rig))
    with pytest.raises(PyverbsRDMAError, match="no request has been begun"):
        rig.qp.wr_complete()


def test_other_threads_wait_for_the_end_of_a_session(rig: SimpleNamespace) -> None:
    rig.qp.wr_start()
    thread = threading.Thread(target=post, args=[rig, 2])
    thread.start()
    build_send(rig, wr_id=1)
    rig.qp.wr_complete()
    thread.join(PATIENCE_S)
    assert completed(rig) == [1, 2]


@pytest.mark.parametrize(("close", "number"), [("qp", errno.EINVAL), ("ctx", errno.EIO)])
def test_what_is_closed_within_a_session_is_not_posted(rig: SimpleNamespace, close: str, number: int) -> None:
    rig.card.status[0] = 1
    rig.card.kicks()
    rig.qp.wr_start()
    build_send(rig)
    card_qp, queue = qp_of(rig), rig.qp.qp.send_queue
    (rig.qp if close == "qp" else rig.ctx).close()
    assert error_of(rig.qp.wr_complete) == number
    assert (rig.card.take_sends(card_qp), rig.card.kicks()) == ([], 0)
    assert queue.free == queue.depth
