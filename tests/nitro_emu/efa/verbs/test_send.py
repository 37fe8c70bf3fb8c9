"""Posting sends: what the card gets, and what is refused with which errno."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nitro_emu.efa.abi import io
from nitro_emu.efa.abi.io import SendOp
from nitro_emu.efa.verbs import QpOptions, QpState, QueuePair, SendFlags, SendRequest, Sge, WrOpcode
from nitro_emu.errors import VerbsError
from tests.nitro_emu.efa.verbs.rig import OPTIONS, QKEY, Rig, opened


def refused(rig: Rig, request: SendRequest) -> int:
    with pytest.raises(VerbsError) as raised:
        rig.qp.post_send(request)
    assert rig.card.take_sends(rig.card_qp) == []
    return raised.value.errno


def test_many_laps_around_the_ring(rig: Rig) -> None:
    for lap in range(40):  # of 8: the card checks phases
        for number in range(5):
            rig.qp.post_send(rig.request(wr_id=lap * 5 + number))
        rig.complete_sends()
        assert [done.wr_id for done in rig.cq.poll(8)] == [lap * 5 + number for number in range(5)]


def test_several_requests_have_one_doorbell(rig: Rig) -> None:
    rig.card.status[0] = 1
    rig.qp.post_send(*(rig.request(wr_id=number) for number in range(4)))
    assert len(rig.card.take_sends(rig.card_qp)) == 4
    assert rig.card.kicks() == 1


def test_the_card_is_kicked_only_when_it_sleeps(rig: Rig) -> None:
    rig.qp.post_send(rig.request())
    assert rig.card.kicks() == 0
    rig.card.status[0] = 1
    rig.qp.post_send(rig.request())
    assert rig.card.kicks() == 1


def test_a_slot_is_free_when_its_completion_is_polled(rig: Rig) -> None:
    for number in range(8):
        rig.qp.post_send(rig.request(wr_id=number))
    assert len(rig.complete_sends()) == 8  # the card has copied and completed them all
    assert refused(rig, rig.request()) == errno.ENOMEM
    rig.cq.poll(3)
    for _ in range(3):
        rig.qp.post_send(rig.request())
    assert rig.qp.send_queue.free == 0
    with pytest.raises(VerbsError) as raised:
        rig.qp.post_send(rig.request())
    assert raised.value.errno == errno.ENOMEM


def test_those_before_the_failing_one_are_posted(rig: Rig) -> None:
    bad = replace(rig.request(wr_id=3), flags=SendFlags(0))
    with pytest.raises(VerbsError):
        rig.qp.post_send(rig.request(wr_id=1), rig.request(wr_id=2), bad, rig.request(wr_id=4))
    assert len(rig.complete_sends()) == 2
    assert [done.wr_id for done in rig.cq.poll(8)] == [1, 2]


@pytest.mark.parametrize(
    ("change", "number"),
    [
        ({"flags": SendFlags(0)}, errno.EINVAL),
        ({"flags": SendFlags.SIGNALED | 1}, errno.EINVAL),
        ({"flags": SendFlags.SIGNALED | 4}, errno.EINVAL),
        ({"opcode": WrOpcode.RDMA_WRITE}, errno.EINVAL),
        ({"opcode": WrOpcode.RDMA_READ}, errno.EINVAL),
        ({"opcode": 77}, errno.EINVAL),
        ({"sges": (Sge(0, 1, 1),) * 3}, errno.EINVAL),
        ({"sges": (Sge(1 << 64, 1, 1),)}, errno.EINVAL),
        ({"remote_qpn": 1 << 16}, errno.EINVAL),
    ],
)
def test_refused(rig: Rig, change: dict[str, Any], number: int) -> None:
    assert refused(rig, replace(rig.request(), **change)) == number
    rig.qp.post_send(rig.request(wr_id=9))  # nothing is lost by it
    assert rig.qp.send_queue.free == 7
    rig.complete_sends()
    assert rig.cq.poll()[0].wr_id == 9


def test_too_much_inline_data(rig: Rig) -> None:
    flags = SendFlags.SIGNALED | SendFlags.INLINE
    assert refused(rig, rig.request(sges=(rig.sge(20), rig.sge(13)), flags=flags)) == errno.EINVAL
    rig.qp.post_send(rig.request(sges=(rig.sge(20), rig.sge(12)), flags=flags))


@pytest.mark.parametrize("state", [QpState.RESET, QpState.ERR])
def test_states_that_do_not_send(rig: Rig, state: QpState) -> None:
    rig.qp.modify(state)
    assert refused(rig, rig.request()) == errno.EINVAL


def test_a_queue_pair_that_signals_all_needs_no_flag(tmp_path: Path) -> None:
    with opened(tmp_path, options=replace(OPTIONS, signal_all=True)) as rig:
        rig.qp.post_send(rig.request(flags=SendFlags(0)))
        (wqe,) = rig.card.take_sends(rig.card_qp)
        assert wqe.comp_req


def test_sqd_still_posts(rig: Rig) -> None:
    rig.qp.modify(QpState.SQD)
    rig.qp.post_send(rig.request())
    assert rig.qp.state is QpState.SQD


def test_a_reset_starts_the_ring_again(rig: Rig) -> None:
    for _ in range(5):
        rig.qp.post_send(rig.request())
    stale = [descriptor.req_id for descriptor in rig.card.take_sends(rig.card_qp)]
    rig.qp.modify(QpState.RESET)
    rig.card_qp.sends_taken = 0
    rig.qp.to_rts(qkey=QKEY)
    assert rig.card.take_sends(rig.card_qp) == []
    assert rig.qp.send_queue.free == 8
    rig.qp.post_send(rig.request(wr_id=6))
    rig.card.complete_send(rig.card_cq, rig.card_qp, stale[0])
    rig.complete_sends()
    with pytest.raises(VerbsError, match="is gone"):
        rig.cq.poll()
    assert rig.cq.poll()[0].wr_id == 6


def test_a_closed_queue_pair(rig: Rig) -> None:
    rig.qp.close()
    with pytest.raises(VerbsError) as raised:
        rig.qp.post_send(rig.request())
    assert raised.value.errno == errno.EINVAL


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("immediate", [None, 0xCAFE])
def test_many_sends_at_once_are_the_same_as_one_by_one(tmp_path: Path, *, wide: bool, immediate: int | None) -> None:
    options = replace(OPTIONS, max_send_wr=16, max_inline_data=80 if wide else 0)
    with opened(tmp_path, options=options) as rig:
        count, wr_id = 0, 0
        for batch in (5, 16, 11, 1, 16, 7):
            addresses = rig.mr.address + np.arange(batch, dtype=np.uint64) * 128
            lengths = np.arange(batch) + 1
            rig.qp.post_sends(
                rig.ah,
                remote_qpn=7,
                remote_qkey=QKEY,
                addresses=addresses,
                lengths=lengths,
                lkey=rig.mr.lkey,
                wr_ids=range(wr_id, wr_id + batch),
                immediate=immediate,
            )
            wqes = rig.card.take_sends(rig.card_qp)
            expected = [
                Sge(int(address), int(length), rig.mr.lkey) for address, length in zip(addresses, lengths, strict=True)
            ]
            assert [wqe.sges for wqe in wqes] == [(sge,) for sge in expected]
            for wqe in wqes:
                assert (wqe.ah, wqe.dest_qp_num, wqe.qkey) == (rig.ah.number, 7, QKEY)
                assert (wqe.op, wqe.comp_req, wqe.inline, wqe.remote) == (SendOp.SEND, True, False, None)
                assert (wqe.has_imm, wqe.immediate) == (immediate is not None, immediate or 0)
                rig.card.complete_send(rig.card_cq, rig.card_qp, wqe.req_id)
            assert [done.wr_id for done in rig.cq.poll(batch)] == list(range(wr_id, wr_id + batch))
            count, wr_id = count + batch, wr_id + batch


@pytest.mark.parametrize("op", [SendOp.RDMA_READ, SendOp.RDMA_WRITE])
def test_many_rdma_requests(rig: Rig, op: SendOp) -> None:
    for lap in range(5):
        rig.qp.post_rdma(
            op,
            rig.ah,
            remote_qpn=7,
            remote_qkey=QKEY,
            addresses=rig.mr.address,
            lengths=np.array([100, 200, 300]),
            lkey=rig.mr.lkey,
            remote_addresses=np.array([1 << 40, 2 << 40, 3 << 40], np.uint64),
            rkey=0xFFFFFFFF,
            wr_ids=[1, 2, 3],
        )
        wqes = rig.card.take_sends(rig.card_qp)
        assert [wqe.remote for wqe in wqes] == [
            io.RemoteMemory(0xFFFFFFFF, number << 40, number * 100) for number in (1, 2, 3)
        ]
        assert [wqe.sges for wqe in wqes] == [(rig.sge(number * 100),) for number in (1, 2, 3)]
        assert {wqe.op for wqe in wqes} == {op}, lap
        for wqe in wqes:
            rig.card.complete_send(rig.card_cq, rig.card_qp, wqe.req_id, op=op)
        assert len(rig.cq.poll(3)) == 3


def test_more_sends_at_once_than_there_is_room_for(rig: Rig) -> None:
    rig.qp.post_send(rig.request())
    with pytest.raises(VerbsError) as raised:
        rig.qp.post_sends(
            rig.ah, remote_qpn=7, remote_qkey=1, addresses=rig.mr.address, lengths=1, lkey=1, wr_ids=range(8)
        )
    assert raised.value.errno == errno.ENOMEM
    assert len(rig.card.take_sends(rig.card_qp)) == 1
    assert rig.qp.send_queue.free == 7


@pytest.mark.parametrize(
    ("options", "depths"),
    [
        (QpOptions(), (1, 1)),
        (QpOptions(max_send_wr=1000, max_recv_wr=1000), (1024, 1024)),
        (QpOptions(max_send_wr=5, max_recv_wr=5, max_recv_sge=2), (8, 16)),
        (QpOptions(max_send_wr=4096, max_recv_wr=32768), (4096, 32768)),
        (QpOptions(max_send_wr=2048, max_inline_data=33), (2048, 1)),
        (QpOptions(max_send_wr=2048, inline_write=True), (2048, 1)),
        (QpOptions(max_send_wr=1, max_recv_wr=0), (1, 0)),
        (QpOptions(max_send_sge=0, max_recv_sge=0), (1, 1)),
    ],
)
def test_rings_are_powers_of_two(rig: Rig, options: QpOptions, depths: tuple[int, int]) -> None:
    qp = QueuePair(rig.pd, send_cq=rig.cq, recv_cq=rig.cq, options=options)
    command = rig.card.qps[qp.handle].command
    assert (command.send_queue_depth, command.recv_queue_depth) == depths
    assert (qp.send_queue.depth, qp.recv_queue.depth) == depths
    wide = options.max_inline_data > 32 or options.inline_write
    assert command.send_queue_ring_size == depths[0] * (128 if wide else 64)
    assert command.recv_queue_ring_size == depths[1] * 16
    assert qp.recv_queue.requests == depths[1] // max(options.max_recv_sge, 1)


@pytest.mark.parametrize(
    "options",
    [
        QpOptions(max_send_wr=4097),
        QpOptions(max_send_wr=2049, max_inline_data=80),
        QpOptions(max_recv_wr=32769),
        QpOptions(max_recv_wr=16385, max_recv_sge=2),
        QpOptions(max_send_sge=3),
        QpOptions(max_recv_sge=3),
        QpOptions(max_inline_data=81),
        QpOptions(max_inline_data=-1),
    ],
)
def test_more_than_the_device_has(rig: Rig, options: QpOptions) -> None:
    with pytest.raises(VerbsError, match="is not within") as raised:
        QueuePair(rig.pd, send_cq=rig.cq, recv_cq=rig.cq, options=options)
    assert raised.value.errno == errno.EINVAL
