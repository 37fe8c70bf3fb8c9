"""Polling completions, one by one and as arrays."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nitro_emu.efa.abi.io import CompStatus, SendOp
from nitro_emu.efa.verbs import (
    CompletionQueue,
    QueuePair,
    RecvRequest,
    WcOpcode,
    WcStatus,
    byte_lengths,
    wc_status,
)
from nitro_emu.errors import VerbsError
from tests.nitro_emu.efa.verbs.rig import OPTIONS, QKEY, Rig, opened

UNKNOWN = 0xFFFF


def post_recv(rig: Rig, wr_id: int) -> int:
    """Post a receive request; return its id in the card."""
    rig.qp.post_recv(RecvRequest(wr_id, (rig.sge(),)))
    return rig.card.take_recvs(rig.card_qp)[0].req_id


def test_nothing(rig: Rig) -> None:
    assert rig.cq.poll(4) == []
    assert rig.cq.next_poll() is None
    assert len(rig.cq.poll_array(4)) == 0


def test_a_write_with_immediate(rig: Rig) -> None:
    req_id = post_recv(rig, 7)
    length = 0x12345
    rig.card.complete_recv(
        rig.card_cq, rig.card_qp, req_id, length=length, op=SendOp.RDMA_WRITE, immediate=3, ah=UNKNOWN
    )
    (done,) = rig.cq.poll(4)
    assert (done.wr_id, done.opcode, done.byte_len, done.src_gid) == (7, WcOpcode.RECV_RDMA_WITH_IMM, length, b"")


def test_an_unsolicited_write_consumes_nothing(rig: Rig) -> None:
    req_id = post_recv(rig, 7)
    for _ in range(2):
        rig.card.complete_recv(rig.card_cq, rig.card_qp, req_id, op=SendOp.RDMA_WRITE, immediate=3, unsolicited=True)
    rig.card.complete_recv(rig.card_cq, rig.card_qp, req_id)
    one = rig.cq.poll(1)[0]
    assert (one.wr_id, one.unsolicited, one.immediate) == (0, True, 3)
    assert rig.qp.recv_queue.free == 7
    others = rig.cq.poll_array(4)
    assert others["wr_id"].tolist() == [0, 7]
    assert rig.qp.recv_queue.free == 8


def test_the_statuses_that_programs_know() -> None:
    expected = {
        CompStatus.FLUSHED: WcStatus.WR_FLUSH_ERR,
        CompStatus.LOCAL_ERROR_INVALID_AH: WcStatus.LOC_QP_OP_ERR,
        CompStatus.LOCAL_ERROR_INVALID_LKEY: WcStatus.LOC_PROT_ERR,
        CompStatus.LOCAL_ERROR_BAD_LENGTH: WcStatus.LOC_LEN_ERR,
        CompStatus.REMOTE_ERROR_BAD_ADDRESS: WcStatus.REM_ACCESS_ERR,
        CompStatus.REMOTE_ERROR_BAD_DEST_QPN: WcStatus.REM_INV_RD_REQ_ERR,
        CompStatus.REMOTE_ERROR_RNR: WcStatus.RNR_RETRY_EXC_ERR,
        CompStatus.LOCAL_ERROR_UNRESP_REMOTE: WcStatus.RESP_TIMEOUT_ERR,
        CompStatus.LOCAL_ERROR_UNREACH_REMOTE: WcStatus.RESP_TIMEOUT_ERR,
    }
    assert {status: wc_status(status) for status in expected} == expected
    assert wc_status(99) is WcStatus.GENERAL_ERR


@pytest.mark.parametrize("array", [False, True])
def test_many_laps(tmp_path: Path, *, array: bool) -> None:
    with opened(tmp_path, cq_depth=8) as rig:
        assert rig.cq.depth == 8
        for lap in range(30):
            wr_ids = list(range(lap * 5, lap * 5 + 5))
            rig.qp.post_send(*(rig.request(wr_id=wr_id) for wr_id in wr_ids))
            rig.complete_sends()
            polled: list[int] = []
            while len(polled) < 5:  # an array ends at the ring's end
                more = rig.cq.poll_array(8)["wr_id"].tolist() if array else [done.wr_id for done in rig.cq.poll(8)]
                assert more
                polled += more
            assert polled == wr_ids
            assert len(rig.cq.poll_array(8)) == 0
            assert rig.card.consumed(rig.card_cq).consumer == (lap + 1) * 5 & 0xFFFF


def test_the_counter_wraps_after_16_bits(tmp_path: Path) -> None:
    with opened(tmp_path, cq_depth=8) as rig:
        for lap in range((1 << 16) // 8 + 2):
            rig.qp.post_sends(
                rig.ah, remote_qpn=1, remote_qkey=QKEY, addresses=rig.mr.address, lengths=1, lkey=1, wr_ids=range(8)
            )
            rig.complete_sends()
            assert len(rig.cq.poll_array(8)) == 8, lap
        assert rig.card.consumed(rig.card_cq).consumer == 16


@pytest.mark.parametrize("most", [1, 3])
def test_not_more_than_asked_for(rig: Rig, most: int) -> None:
    rig.qp.post_send(*(rig.request(wr_id=number) for number in range(8)))
    rig.complete_sends()
    assert len(rig.cq.poll(most)) == most
    assert len(rig.cq.poll_array(most)) == most
    assert rig.card.consumed(rig.card_cq).consumer == 2 * most


def test_arrays_have_what_the_card_wrote(rig: Rig) -> None:
    send_ids, recv_ids = [], []
    for number in range(4):
        rig.qp.post_send(rig.request(wr_id=100 + number))
        (wqe,) = rig.card.take_sends(rig.card_qp)
        send_ids.append(wqe.req_id)
        recv_ids.append(post_recv(rig, 200 + number))
    for number in (2, 0, 3, 1):
        rig.card.complete_send(rig.card_cq, rig.card_qp, send_ids[number], status=number)
        rig.card.complete_recv(
            rig.card_cq, rig.card_qp, recv_ids[number], length=0x20000 + number, op=SendOp.RDMA_WRITE, immediate=number
        )
    done = rig.cq.poll_array(16)
    assert done["wr_id"].tolist() == [102, 202, 100, 200, 103, 203, 101, 201]
    assert done["status"].tolist() == [2, 0, 0, 0, 3, 0, 1, 0]
    received = done[1::2]
    assert byte_lengths(received).tolist() == [0x20002, 0x20000, 0x20003, 0x20001]
    assert received["immediate"].tolist() == [2, 0, 3, 1]
    assert set(received["src_qp"].tolist()) == {55}
    assert set(done["qp_num"].tolist()) == {rig.qp.number}
    assert (rig.qp.send_queue.free, rig.qp.recv_queue.free) == (8, 8)


def test_several_queue_pairs_share_a_queue(rig: Rig) -> None:
    other = QueuePair(rig.pd, send_cq=rig.cq, recv_cq=rig.cq, options=OPTIONS)
    other.to_rts(qkey=QKEY)
    card_other = rig.card.qps[other.handle]
    for number in range(6):
        qp, card_qp = (rig.qp, rig.card_qp) if number % 2 else (other, card_other)
        qp.post_send(rig.request(wr_id=number))
        for wqe in rig.card.take_sends(card_qp):
            rig.card.complete_send(rig.card_cq, card_qp, wqe.req_id)
    assert [done.wr_id for done in rig.cq.poll(2)] == [0, 1]
    done = rig.cq.poll_array(8)
    assert done["wr_id"].tolist() == [2, 3, 4, 5]
    assert done["qp_num"].tolist() == [other.number, rig.qp.number] * 2
    assert (rig.qp.send_queue.free, other.send_queue.free) == (8, 8)


def test_completions_of_a_queue_pair_that_is_gone(rig: Rig) -> None:
    other = QueuePair(rig.pd, send_cq=rig.cq, recv_cq=rig.cq, options=OPTIONS)
    other.to_rts(qkey=QKEY)
    card_other = rig.card.qps[other.handle]
    for qp, card_qp in ((other, card_other), (rig.qp, rig.card_qp)) * 2:
        qp.post_send(rig.request(wr_id=qp.number))
        for wqe in rig.card.take_sends(card_qp):
            rig.card.complete_send(rig.card_cq, card_qp, wqe.req_id)
    other.close()
    with pytest.raises(VerbsError, match="is gone") as raised:
        rig.cq.poll(4)
    assert raised.value.errno == errno.EINVAL
    assert [done.wr_id for done in rig.cq.poll(1)] == [rig.qp.number]
    assert rig.cq.poll_array(4)["wr_id"].tolist() == [rig.qp.number]
    assert rig.cq.stale == 2


def test_an_error_after_good_completions_comes_at_the_next_poll(rig: Rig) -> None:
    rig.qp.post_send(rig.request(wr_id=1))
    rig.complete_sends()
    rig.card.complete_send(rig.card_cq, rig.card_qp, 0xFFFF)
    assert [done.wr_id for done in rig.cq.poll(4)] == [1]
    assert rig.cq.poll(4) == []  # libibverbs reports what it has, and has consumed the bad one


def test_a_new_queue_pair_with_the_number_of_an_old_one(rig: Rig) -> None:
    rig.card.next_qp_num = 77
    old = QueuePair(rig.pd, send_cq=rig.cq, recv_cq=rig.cq, options=OPTIONS)
    old.to_rts(qkey=QKEY)
    card_old = rig.card.qps[old.handle]
    old.post_send(rig.request(wr_id=1))
    (stale,) = rig.card.take_sends(card_old)
    old.close()
    new = QueuePair(rig.pd, send_cq=rig.cq, recv_cq=rig.cq, options=OPTIONS)
    assert new.number == old.number
    new.to_rts(qkey=QKEY)
    new.post_send(rig.request(wr_id=2))
    rig.card.complete_send(rig.card_cq, card_old, stale.req_id)
    with pytest.raises(VerbsError, match="is gone"):
        rig.cq.poll()
    assert new.send_queue.free == 7


def test_the_order_of_garbage_collection_does_not_hide_a_new_queue_pair(rig: Rig) -> None:
    """The number of a queue pair that is collected late may have been given to another one already."""
    rig.card.next_qp_num = 77
    old = QueuePair(rig.pd, send_cq=rig.cq, recv_cq=rig.cq, options=OPTIONS)
    new = QueuePair(rig.pd, send_cq=rig.cq, recv_cq=rig.cq, options=OPTIONS)
    new.to_rts(qkey=QKEY)
    del old
    new.post_send(rig.request(wr_id=2))
    for wqe in rig.card.take_sends(rig.card.qps[new.handle]):
        rig.card.complete_send(rig.card_cq, rig.card.qps[new.handle], wqe.req_id)
    assert rig.cq.poll()[0].wr_id == 2


def test_extended_polling(rig: Rig) -> None:
    rig.qp.post_send(*(rig.request(wr_id=number) for number in range(3)))
    rig.complete_sends()
    first = rig.cq.next_poll()
    assert first is not None
    assert first.wr_id == 0
    second = rig.cq.next_poll()
    assert second is not None
    assert second.wr_id == 1
    assert rig.card.consumed(rig.card_cq).consumer == 0
    rig.cq.end_poll()
    assert rig.card.consumed(rig.card_cq).consumer == 2


@pytest.mark.parametrize("depth", [0, -1, 32769])
def test_depths_that_the_device_does_not_have(rig: Rig, depth: int) -> None:
    with pytest.raises(VerbsError) as raised:
        CompletionQueue(rig.context, depth)
    assert raised.value.errno == errno.EINVAL


@pytest.mark.parametrize(
    "call",
    [
        CompletionQueue.poll,
        CompletionQueue.next_poll,
        lambda cq: cq.poll_array(1),
        CompletionQueue.request_notify,
    ],
)
def test_a_closed_queue(rig: Rig, call: Callable[[CompletionQueue], object]) -> None:
    rig.qp.close()
    rig.cq.close()
    with pytest.raises(VerbsError) as raised:
        call(rig.cq)
    assert raised.value.errno == errno.EINVAL
    rig.cq.end_poll()


def test_what_the_card_could_not_have_written(rig: Rig) -> None:
    ring = rig.card_cq.region
    for number in range(2):
        ring.view(number * 32, length=8)[:] = bytes([0, 0, 0, 0b111, 0, 0, 0, 0])  # of queue type 3
    with pytest.raises(VerbsError) as raised:
        rig.cq.poll()
    assert raised.value.errno == errno.EINVAL
    assert len(rig.cq.poll_array(4)) == 0
    assert rig.card.consumed(rig.card_cq).consumer == 2


def test_arrays_are_the_applications_own(rig: Rig) -> None:
    rig.qp.post_send(rig.request(wr_id=5))
    rig.complete_sends()
    done = rig.cq.poll_array(4)
    rig.card_cq.region.array[:] = 0xFF
    assert done["wr_id"].tolist() == [5]
    assert np.asarray(done["status"]).tolist() == [0]
