"""The builder of send requests: what it builds, and that a session is posted as a whole or not at all."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nitro_emu.efa.abi.io import ProcessingHint, RemoteMemory, SendOp
from nitro_emu.efa.verbs import QpState, SendFlags, SendOps, Sge
from nitro_emu.efa.verbs.send_builder import SendBuilder
from nitro_emu.errors import VerbsError
from tests.nitro_emu.efa.verbs.rig import OPTIONS, QKEY, Rig, opened
from tests.patience import PATIENCE_S


def build_send(rig: Rig, *, wr_id: int = 1, length: int = 10) -> None:
    builder = rig.qp.builder
    builder.wr_id = wr_id
    builder.send()
    builder.set_ud_address(rig.ah, remote_qpn=7, remote_qkey=QKEY)
    builder.set_sge(rig.sge(length))


def test_a_session_of_every_operation(rig: Rig) -> None:
    builder = rig.qp.builder
    builder.start()
    build_send(rig)
    builder.send(immediate=5)
    builder.set_inline_data(b"inline")
    builder.rdma_read(0xAAAA, address=1 << 40)
    builder.set_sge(rig.sge(100))
    builder.rdma_write(0xBBBB, address=2 << 40)
    builder.set_sge_list([rig.sge(200)])
    builder.rdma_write(0xCCCC, address=3 << 40, immediate=6)
    builder.set_ud_address(rig.ah, remote_qpn=8, remote_qkey=QKEY)
    builder.set_sge(rig.sge(300))
    builder.set_processing_hints(ProcessingHint.BURST_PPS_SENSITIVE)
    assert rig.card.take_sends(rig.card_qp) == []
    builder.complete()
    send, inline, read, write, write_imm = rig.card.take_sends(rig.card_qp)
    assert (send.op, send.sges, send.dest_qp_num, send.qkey, send.ah) == (
        SendOp.SEND,
        (rig.sge(10),),
        7,
        QKEY,
        rig.ah.number,
    )
    assert (inline.data, inline.inline, inline.has_imm, inline.immediate) == (b"inline", True, True, 5)
    assert (read.op, read.remote, read.sges) == (
        SendOp.RDMA_READ,
        RemoteMemory(0xAAAA, 1 << 40, 100),
        (rig.sge(100),),
    )
    assert (write.op, write.remote, write.has_imm) == (SendOp.RDMA_WRITE, RemoteMemory(0xBBBB, 2 << 40, 200), False)
    assert (write_imm.immediate, write_imm.has_imm, write_imm.dest_qp_num, write_imm.hints) == (6, True, 8, 1)
    assert all(wqe.comp_req for wqe in (send, inline, read, write, write_imm))


def test_inline_writes_need_wide_entries(tmp_path: Path) -> None:
    with opened(tmp_path, options=replace(OPTIONS, inline_write=True, max_inline_data=80)) as rig:
        builder = rig.qp.builder
        builder.start()
        builder.rdma_write(1, address=2)
        builder.set_inline_data(bytes(range(80)))
        builder.complete()
        (wqe,) = rig.card.take_sends(rig.card_qp)
        assert (wqe.data, wqe.remote) == (bytes(range(80)), RemoteMemory(1, 2, 80))


def too_much_inline(rig: Rig) -> None:
    rig.qp.builder.send()
    rig.qp.builder.set_inline_data(bytes(33))


def inline_read(rig: Rig) -> None:
    rig.qp.builder.rdma_read(1, address=1)
    rig.qp.builder.set_inline_data(b"x")


def inline_write(rig: Rig) -> None:
    rig.qp.builder.rdma_write(1, address=1)
    rig.qp.builder.set_inline_data(b"x")


def too_many_buffers(rig: Rig) -> None:
    rig.qp.builder.send()
    rig.qp.builder.set_sge_list([rig.sge()] * 3)


def too_many_rdma_buffers(rig: Rig) -> None:
    rig.qp.builder.rdma_read(1, address=1)
    rig.qp.builder.set_sge_list([rig.sge()] * 2)


def no_field_holds_it(rig: Rig) -> None:
    rig.qp.builder.send()
    rig.qp.builder.set_sge(Sge(-1, 1, 1))


def not_signaled(rig: Rig) -> None:
    rig.qp.builder.wr_flags = 0
    rig.qp.builder.send()


def fenced(rig: Rig) -> None:
    rig.qp.builder.wr_flags = SendFlags.SIGNALED | 1
    rig.qp.builder.send()


def too_many(rig: Rig) -> None:
    for _ in range(8):
        rig.qp.builder.send()


FAILURES: list[tuple[Callable[[Rig], None], int]] = [
    (too_much_inline, errno.EINVAL),
    (inline_read, errno.EINVAL),
    (inline_write, errno.EINVAL),
    (too_many_buffers, errno.EINVAL),
    (too_many_rdma_buffers, errno.EINVAL),
    (no_field_holds_it, errno.EINVAL),
    (not_signaled, errno.EINVAL),
    (fenced, errno.EINVAL),
    (too_many, errno.ENOMEM),
]


@pytest.mark.parametrize(("failure", "number"), FAILURES)
def test_the_first_error_sticks_and_nothing_is_posted(rig: Rig, failure: Callable[[Rig], None], number: int) -> None:
    rig.qp.post_send(*[rig.request()] * 5)
    rig.complete_sends()
    rig.cq.poll(5)  # so that the session wraps
    builder = rig.qp.builder
    builder.start()
    build_send(rig)
    failure(rig)
    builder.wr_flags = int(SendFlags.SIGNALED)
    build_send(rig)  # without effect
    with pytest.raises(VerbsError) as raised:
        builder.complete()
    assert raised.value.errno == number
    assert rig.card.take_sends(rig.card_qp) == []
    assert rig.qp.send_queue.free == 8
    for wr_id in range(20):
        builder.start()
        build_send(rig, wr_id=wr_id)
        builder.complete()
        rig.complete_sends()
        assert rig.cq.poll()[0].wr_id == wr_id


def test_what_the_queue_pair_was_not_created_for(tmp_path: Path) -> None:
    with opened(tmp_path, options=replace(OPTIONS, send_ops=SendOps.SEND)) as rig:
        builder = rig.qp.builder
        operations: list[Callable[[], None]] = [
            lambda: builder.send(immediate=1),
            lambda: builder.rdma_read(1, address=1),
            lambda: builder.rdma_write(1, address=1),
            lambda: builder.rdma_write(1, address=1, immediate=1),
        ]
        for operation in operations:
            builder.start()
            operation()
            with pytest.raises(VerbsError) as raised:
                builder.complete()
            assert raised.value.errno == errno.EOPNOTSUPP


def test_the_state_is_checked_and_reported_at_the_end(rig: Rig) -> None:
    rig.qp.modify(QpState.RESET)
    rig.qp.builder.start()
    build_send(rig)
    with pytest.raises(VerbsError) as raised:
        rig.qp.builder.complete()
    assert raised.value.errno == errno.EINVAL


def test_abort_posts_nothing(rig: Rig) -> None:
    rig.qp.builder.start()
    build_send(rig, wr_id=1)
    build_send(rig, wr_id=2)
    rig.qp.builder.abort()
    assert rig.card.take_sends(rig.card_qp) == []
    assert rig.qp.send_queue.free == 8
    rig.qp.post_send(rig.request(wr_id=3))
    rig.complete_sends()
    assert rig.cq.poll()[0].wr_id == 3


def test_completions_within_a_session_and_a_rollback(rig: Rig) -> None:
    rig.qp.post_send(*(rig.request(wr_id=number) for number in range(4)))
    rig.complete_sends()
    rig.qp.builder.start()
    build_send(rig, wr_id=10)
    build_send(rig, wr_id=11)
    assert [done.wr_id for done in rig.cq.poll(8)] == [0, 1, 2, 3]
    rig.qp.builder.abort()
    seen = set()
    for number in range(8):
        rig.qp.post_send(rig.request(wr_id=number))
    seen = {wqe.req_id for wqe in rig.card.take_sends(rig.card_qp)}
    assert len(seen) == 8


def test_an_empty_session(rig: Rig) -> None:
    rig.qp.builder.start()
    rig.qp.builder.complete()
    assert rig.card.take_sends(rig.card_qp) == []


def test_sessions_do_not_nest(rig: Rig) -> None:
    rig.qp.builder.start()
    with pytest.raises(VerbsError, match="is open"):
        rig.qp.builder.start()
    build_send(rig)
    rig.qp.builder.complete()
    assert len(rig.card.take_sends(rig.card_qp)) == 1


@pytest.mark.parametrize("call", [SendBuilder.send, SendBuilder.complete, SendBuilder.abort])
def test_nothing_without_a_session(rig: Rig, call: Callable[[SendBuilder], None]) -> None:
    with pytest.raises(VerbsError, match="no session"):
        call(rig.qp.builder)


def test_a_buffer_without_a_request(rig: Rig) -> None:
    rig.qp.builder.start()
    rig.qp.builder.set_sge(rig.sge())
    with pytest.raises(VerbsError, match="no request has been begun"):
        rig.qp.builder.complete()


def test_other_threads_wait_for_the_end_of_a_session(rig: Rig) -> None:
    rig.qp.builder.start()
    thread = threading.Thread(target=rig.qp.post_send, args=[rig.request(wr_id=2)])
    thread.start()
    build_send(rig, wr_id=1)
    rig.qp.builder.complete()
    thread.join(PATIENCE_S)
    rig.complete_sends()
    assert [done.wr_id for done in rig.cq.poll(2)] == [1, 2]


@pytest.mark.parametrize(("close", "number"), [("qp", errno.EINVAL), ("context", errno.EIO)])
def test_what_is_closed_within_a_session_is_not_posted(rig: Rig, close: str, number: int) -> None:
    rig.card.status[0] = 1
    rig.card.kicks()
    builder = rig.qp.builder
    builder.start()
    build_send(rig)
    card_qp = rig.card_qp
    (rig.qp if close == "qp" else rig.context).close()
    with pytest.raises(VerbsError) as raised:
        builder.complete()
    assert raised.value.errno == number
    assert (rig.card.take_sends(card_qp), rig.card.kicks()) == ([], 0)
    assert rig.qp.send_queue.free == rig.qp.send_queue.depth
