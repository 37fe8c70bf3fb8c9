"""The state table of a queue pair, and what it reserves for whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from devmem.region import Region
from nitro_emu.efa.abi import io
from nitro_emu.efa.abi.commands import ModifyQp
from nitro_emu.efa.abi.enums import AdminStatus, ModifyMask, QpState
from nitro_emu.efa.card.completion_queue import CardCompletionQueue
from nitro_emu.efa.card.objects import CardProtectionDomain
from nitro_emu.efa.card.queue_pair import CardQueuePair
from nitro_emu.efa.card.recv_queue import CardRecvQueue, PostedReceive
from nitro_emu.errors import AdminError

NOBODY: Any = None
RESET, INIT, RTR, RTS, SQD, SQE, ERR = QpState
ALLOWED = {
    (RESET, INIT), (INIT, INIT), (INIT, RTR), (RTR, RTS), (RTS, RTS), (RTS, SQD), (SQD, SQD), (SQD, RTS), (SQE, RTS),
    *((state, RESET) for state in QpState), *((state, ERR) for state in QpState),
}  # fmt: skip


@pytest.fixture
def qp() -> Iterator[CardQueuePair]:
    cqs = [
        CardCompletionQueue(
            number, slot=0, depth=4, entry_bytes=16, doorbell=lambda: 0, events=None, on_completion=lambda: None,
            on_overrun=lambda _: None,
        )
        for number in (1, 2)
    ]  # fmt: skip
    region = Region(4096)
    rq = CardRecvQueue(memoryview(region), depth=8, doorbell=lambda: 0)
    domain = CardProtectionDomain(1, users=1)
    for cq in cqs:
        cq.users = 1
    pair = CardQueuePair(3, NOBODY, 0, domain, cqs[0], cqs[1], region, None, rq, is_unsolicited=False)
    yield pair
    pair.close()
    assert [domain.users, cqs[0].users, cqs[1].users] == [0, 0, 0]
    for cq in cqs:
        cq.close()


@pytest.mark.parametrize("before", QpState)
@pytest.mark.parametrize("after", QpState)
def test_the_table(qp: CardQueuePair, before: QpState, after: QpState) -> None:
    qp.state = before
    command = ModifyQp(ModifyMask.QP_STATE | ModifyMask.QKEY, 3, qp_state=after, qkey=77)
    if (before, after) in ALLOWED:
        qp.modify(command)
        assert (qp.state, qp.qkey) == (after, 77)
        return
    with pytest.raises(AdminError) as caught:
        qp.modify(command)
    assert caught.value.status == AdminStatus.ILLEGAL_PARAMETER
    assert (qp.state, qp.qkey) == (before, 0), "nothing is changed"


@pytest.mark.parametrize("state", QpState)
def test_which_states_receive(qp: CardQueuePair, state: QpState) -> None:
    qp.state = state
    assert qp.receives is (state in {RTR, RTS, SQD})


@pytest.mark.parametrize(
    "command",
    [
        ModifyQp(ModifyMask.QP_STATE, 3, qp_state=7),
        ModifyQp(ModifyMask.QP_STATE, 3, qp_state=0xFFFFFFFF),
        ModifyQp(ModifyMask.CUR_QP_STATE, 3, cur_qp_state=RTS),
        ModifyQp(ModifyMask.QP_STATE | ModifyMask.CUR_QP_STATE, 3, qp_state=INIT, cur_qp_state=INIT),
        ModifyQp(ModifyMask.QP_STATE | ModifyMask.RNR_RETRY, 3, qp_state=INIT, rnr_retry=8),
    ],
)
def test_what_is_refused_changes_nothing(qp: CardQueuePair, command: ModifyQp) -> None:
    with pytest.raises(AdminError) as caught:
        qp.modify(command)
    assert caught.value.status == AdminStatus.ILLEGAL_PARAMETER
    assert (qp.state, qp.rnr_retry) == (RESET, 0)


def test_only_what_the_mask_names_is_set(qp: CardQueuePair) -> None:
    qp.modify(ModifyQp(0, 3, qp_state=INIT, qkey=1, sq_psn=2, rnr_retry=3))
    assert (qp.state, qp.qkey, qp.sq_psn, qp.rnr_retry) == (RESET, 0, 0, 0)
    mask = ModifyMask.QKEY | ModifyMask.SQ_PSN | ModifyMask.RNR_RETRY
    qp.modify(ModifyQp(mask, 3, qp_state=INIT, qkey=1, sq_psn=0xFF000002, rnr_retry=7))
    assert (qp.state, qp.qkey, qp.sq_psn, qp.rnr_retry) == (RESET, 1, 2, 7)


def test_reservations_belong_to_a_peer_and_a_length(qp: CardQueuePair) -> None:
    assert qp.rq is not None
    posted = _post(qp, count=6)
    qp.reserve_send(1, length=10, requests=qp.rq.reserve(2))
    qp.reserve_send(2, length=10, requests=qp.rq.reserve(1))
    qp.reserve_send(1, length=20, requests=qp.rq.reserve(1))
    qp.reserve_write(1, qp.rq.reserve(1)[0])
    assert _ids(qp.take_send(1, length=20, count=5)) == posted[3:4]
    assert _ids(qp.take_send(1, length=10, count=1)) == posted[:1]
    assert not qp.take_send(2, length=20, count=1)
    assert not qp.take_write(2)
    assert _ids(qp.take_write(1)) == posted[4:5]
    assert qp.rq.available == 1
    qp.forget(1)
    assert _ids(qp.rq.take_all()) == [posted[1], posted[5]], "the oldest first"
    assert _ids(qp.take_send(2, length=10, count=1)) == posted[2:3]


def test_reset_forgets_what_was_reserved(qp: CardQueuePair) -> None:
    assert qp.rq is not None
    _post(qp, count=2)
    qp.reserve_send(1, length=10, requests=qp.rq.reserve(2))
    epoch = qp.epoch
    qp.reset()
    assert qp.epoch == epoch + 1
    assert not qp.take_send(1, length=10, count=1)
    qp.forget(1)
    assert not qp.rq.available


def _post(qp: CardQueuePair, *, count: int) -> list[int]:
    with memoryview(qp.region) as ring:
        for number in range(count):
            raw = io.pack_rx(req_id=number + 100, address=1, length=10, lkey=1)
            ring[number * io.RX_DESC_BYTES : (number + 1) * io.RX_DESC_BYTES] = raw
    assert qp.rq is not None
    qp.rq._doorbell = lambda: count
    qp.rq.fetch()
    return [number + 100 for number in range(count)]


def _ids(requests: list[PostedReceive]) -> list[int]:
    return [request.req_id for request in requests]
